"""What `plan`, `build` or `test` would refuse without running anything, found beforehand for `builder lint`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.cli.recipe.new import NO_MODEL
from builder.errors import BuilderError, InvalidError
from builder.model.canonical import canonical
from builder.model.plan import Plan
from builder.model.recipe import Recipe
from builder.model.textfile import read_text
from builder.model.variant import with_profile
from builder.plan.bases import fitting_bases
from builder.plan.resolve import resolve
from builder.project import Project
from builder.smoke.check import bind_check
from builder.smoke.plan_checks import checks_of
from builder.text import closest, relative_path

_EXPECTED = ("base-not-pinned",)
"""What is no fault of the project: a base whose registry was not reached yet."""
_MOST_WORDS = 20
"""Words of a message that are looked for in a file, which may have a million lines."""


@dataclass(frozen=True)
class Refused:
    """A recipe, base or layer that is refused. recipe: "" for one that no recipe uses. file, line: where to look."""

    recipe: str
    error: BuilderError
    file: str
    line: int


def refused(project: Project, names: Sequence[str] | None, base: str | None) -> Iterator[Refused]:
    """The refusals of recipes. names: None for `own_recipes`, and for bases and layers that no recipe uses.

    base: plan them on this base only.
    """
    places: dict[tuple[str, str], tuple[str, int]] = {}
    for name, error in _errors(project, names, base):
        key = (error.what, error.where or name)
        places[key] = places.get(key) or _place(project, name, error)
        yield Refused(name, error, *places[key])


def own_recipes(project: Project) -> list[str]:
    """The recipes of a user's own folder. Without one, those of the package, which a user's lock may not fit."""
    own = project.roots[0]
    return [name for name in project.recipe_names() if project.recipe_path(name).is_relative_to(own)]


def _errors(project: Project, names: Sequence[str] | None, base: str | None) -> Iterator[tuple[str, BuilderError]]:
    valid: set[bytes] = set()
    for name in own_recipes(project) if names is None else names:
        try:
            recipe = project.recipe(name)
        except BuilderError as error:
            yield name, error
            continue
        yield from ((name, error) for error in _of_recipe(project, recipe, base, valid))
    if names is None:
        for names_of, read in ((project.base_names, project.base), (project.layer_names, project.layer)):
            for name in names_of():
                try:
                    read(name)
                except BuilderError as error:
                    yield "", error


def _of_recipe(project: Project, recipe: Recipe, base: str | None, valid: set[bytes]) -> Iterator[BuilderError]:
    if recipe.model.id == NO_MODEL:
        yield InvalidError(
            f"the model is still {NO_MODEL!r}", id="recipe-model-placeholder", next="name the model on its hub"
        )
    for wanted in (recipe.base, *recipe.compatible):
        if not project.find_bases(wanted):
            near = closest(wanted, project.base_names())
            yield InvalidError(
                f"there is no base {wanted!r}", id="recipe-base-unknown", cause=near, next="builder list bases"
            )
    for profile in (None, *recipe.profiles):
        try:
            served = with_profile(recipe, profile, project.shared_profiles)
            bases = [item.name for item in fitting_bases(project, served)]
        except BuilderError as error:
            yield error
            continue
        # A profile without a base of its own makes the same layers.
        if profile is None or served.base != recipe.base:
            for name in bases:
                if base is None or base in (name, project.base(name).family, *project.base(name).aliases):
                    yield from _of_plan(project, recipe, name, profile, valid)


def _of_plan(
    project: Project, recipe: Recipe, base: str, profile: str | None, valid: set[bytes]
) -> Iterator[BuilderError]:
    try:
        plan = resolve(project, recipe, base=None if profile else base, profile=profile)
    except BuilderError as error:
        if error.id not in _EXPECTED:
            yield error
        return
    yield from _of_checks(plan, valid)


def _of_checks(plan: Plan, valid: set[bytes]) -> Iterator[BuilderError]:
    # Importing these registers the kinds of checks.
    import builder.smoke.cpu.run
    import builder.smoke.gpu.run
    import builder.smoke.static.run  # noqa: F401
    from builder.smoke.cpu.execution import execution_of
    from builder.smoke.cpu.logs import DECLARES, JUDGES

    for check in checks_of(plan):
        # Most checks are those of many recipes.
        identity = canonical([check.tier, check.kind, dict(check.args)])
        if identity in valid:
            continue
        try:
            if check.tier == "cpu" and check.kind not in (DECLARES, JUDGES):
                execution_of(check)
            else:
                bind_check(check)
            valid.add(identity)
        except BuilderError as error:
            yield error


def _place(project: Project, name: str, error: BuilderError) -> tuple[str, int]:
    """The file of an error, and the first line there that has what the message names."""
    file, _, number = error.where.rpartition(":")
    if file and number.isdecimal():
        return relative_path(Path(file)), int(number)
    # Quoted words, paths, and the ids of checks and layers.
    words = re.findall(r"['\"]([^'\"]+)['\"]", error.what)
    words += re.findall(r"(?:/|\b(?:check|layer) )([^\s:]+)", error.what)
    path = Path(error.where)
    files = [path] if error.where and path.is_file() else _files(project, name)
    for each in files:
        with contextlib.suppress(BuilderError):
            text = read_text(each)
            for word in words[:_MOST_WORDS]:
                # Not line by line: a file may have a million of them, and a project a thousand problems.
                if (at := text.find(word)) >= 0:
                    return relative_path(each), text.count("\n", 0, at) + 1
    return (relative_path(files[0]), 1) if files else (error.where or name, 1)


def _files(project: Project, name: str) -> list[Path]:
    """The files of a recipe, its own layers and its base."""
    if name not in project.recipe_names():
        return []
    files = [project.recipe_path(name)]
    with contextlib.suppress(BuilderError):
        recipe = project.recipe(name)
        files += [project.layer(use.layer).folder / "layer.yaml" for use in recipe.layers]
        files.append(project.base_path(recipe.base))
    return files
