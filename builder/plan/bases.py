"""Selects the base of an image from the bases that a recipe can be built on."""

from __future__ import annotations

from pathlib import Path

from builder.errors import InvalidError, PinError, UsageError
from builder.model.base import Base
from builder.model.recipe import Recipe
from builder.model.textfile import place_of
from builder.project import Project
from builder.text import closest


def recipe_files(project: Project, recipe: Recipe) -> list[Path]:
    """The file of a recipe, then those of the recipes that it extends. Raises as `Project.recipe`."""
    files = [project.recipe_path(recipe.name)]
    while recipe.extends is not None:
        recipe = project.recipe(recipe.extends)
        files.append(project.recipe_path(recipe.name))
    return files


def bases_of(project: Project, recipe: Recipe) -> list[Base]:
    """Every base that a recipe can be built on, its own first; a family or an alias gives all of its bases."""
    candidates: list[Base] = []
    named = set(project.base_names())
    for name in (recipe.base, *recipe.compatible):
        # A name needs one file; only an alias or a family needs all of them.
        bases = [project.base(name)] if name in named else project.bases.values()
        candidates += [base for base in bases if name in (base.name, base.family, *base.aliases)]
    return candidates


def fitting_bases(project: Project, recipe: Recipe) -> list[Base]:
    """One base for each name in the recipe, its own first: an alias or a family selects its first compatible base."""
    found: dict[str, Base] = {}
    for name in (recipe.base, *recipe.compatible):
        try:
            base = select_base(project, recipe, name)
        except UsageError:
            continue
        found.setdefault(base.name, base)
    return list(found.values())


def select_base(project: Project, recipe: Recipe, wanted: str | None) -> Base:
    """The base to build on: the recipe's own, or the compatible one that `wanted` names.

    wanted: a base's name, one of its aliases, or a family. Raises UsageError.
    """
    if wanted is None:
        if recipe.base not in project.base_names():
            raise InvalidError(
                f"there is no base {recipe.base!r}",
                id="recipe-base-unknown",
                where=place_of(recipe_files(project, recipe), recipe.base),
                cause=closest(recipe.base, project.base_names()),
                next="builder list bases",
            )
        return project.base(recipe.base)
    candidates = bases_of(project, recipe)
    for match in (
        [base for base in candidates if base.name == wanted],
        [base for base in candidates if wanted in base.aliases],
        [base for base in candidates if base.family == wanted],
    ):
        if match:
            return match[0]
    if not project.find_bases(wanted):
        names = [
            *project.base_names(),
            *(alias for base in project.bases.values() for alias in (base.family, *base.aliases)),
        ]
        raise UsageError(
            f"there is no base {wanted!r}", id="name-unknown", cause=closest(wanted, names), next="builder list bases"
        )
    fitting = ", ".join(dict.fromkeys(base.name for base in candidates))
    raise UsageError(
        f"recipe {recipe.name} does not run on base {wanted!r}",
        id="base-not-compatible",
        cause=f"it runs on {fitting}",
        next=f"to try it: builder new recipe NAME --extends {recipe.name}, and set `base: {wanted}` there",
    )


def check_pinned(project: Project, recipe: Recipe, base: Base) -> None:
    """Raises PinError, which names a pinned base of the recipe if there is one, when the base's image is not pinned."""
    if base.pin is None or base.pin.manifest is not None:
        return
    others = (item.name for item in fitting_bases(project, recipe) if item.pin is None or item.pin.manifest)
    other = next(others, None)
    raise PinError(
        f"base {base.name} is not pinned",
        id="base-not-pinned",
        where=f"recipes/bases/{base.name}.yaml",
        cause="the digest of its linux/arm64 image is not known",
        next=f"builder lock --update {base.name}, where its registry can be reached"
        + (f"; or add --base {other}" if other else ""),
    )
