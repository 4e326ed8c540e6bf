"""PlanRequest: the image that --recipe, --base, --set, --profile, --platform and --compression describe."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace

from builder.cli.options import COMPRESSION, PLATFORM
from builder.cli.output import say
from builder.cli.words import choices
from builder.errors import UsageError
from builder.folders import FILE
from builder.model.base import Base
from builder.model.plan import Plan
from builder.model.recipe import Recipe
from builder.model.reference import Reference
from builder.model.variant import AND, with_profile
from builder.oci.format import MEDIA_TYPES
from builder.plan.bases import select_base
from builder.plan.resolve import parse_sets, resolve
from builder.plan.use import check_written
from builder.project import Project
from builder.store.store import Store, default_root


@dataclass(frozen=True)
class PlanRequest:
    """The image that these options describe. sets: one LAYER.PARAMETER=VALUE each. profile: one, or several, as A+B."""

    recipe: str
    base: str | None = None
    sets: tuple[str, ...] = ()
    profile: str | None = None
    platform: str = PLATFORM
    compression: str = COMPRESSION

    def plan(self, project: Project) -> Plan:
        """The plan of this image. Raises BuilderError."""
        if self.compression not in MEDIA_TYPES:
            raise UsageError(
                f"there is no compression {self.compression!r}",
                id="compression-unknown",
                next=f"one of {', '.join(choices('build', 'compression'))}",
            )
        return resolve(
            project,
            project.recipe(self.recipe),
            base=self.base,
            sets=parse_sets(list(self.sets)),
            platform=self.platform,
            compression=self.compression,
            profile=self.profile,
        )

    def recipe_and_base(self, project: Project) -> tuple[Recipe, Base]:
        """The recipe with its profile applied, and the base to serve it on. Raises UsageError for unknown names."""
        recipe = with_profile(project.recipe(self.recipe), self.profile, project.shared_profiles)
        return recipe, select_base(project, recipe, self.base)

    def variant(self) -> list[str]:
        """The profile and parameters by which this image differs from the recipe's own on the same base."""
        return [*([f"profile={self.profile}"] if self.profile else []), *sorted(self.sets)]

    def command(self, name: str, *more: str) -> str:
        """The command line of a command about this image, to be pasted into a shell. more: further arguments."""
        return shlex.join(["builder", name, *self.words(), *more])

    def words(self) -> list[str]:
        """These options as arguments of a command line."""
        words = ["--recipe", self.recipe]
        words += ["--base", self.base] if self.base else []
        words += [word for item in self.sets for word in ("--set", item)]
        words += [word for name in (self.profile or "").split(AND) if name for word in ("--profile", name)]
        return words + (["--compression", self.compression] if self.compression != COMPRESSION else [])


def asked(
    project: Project,
    recipe: str,
    base: str | None = None,
    set_: Iterable[str] | None = None,
    profile: str | None = None,
    platform: str = PLATFORM,
    compression: str = COMPRESSION,
) -> PlanRequest:
    """The image that the options of a command describe, as in `asked_each`."""
    return asked_each(project, [recipe], base, set_, profile, platform, compression)[0]


def asked_each(
    project: Project,
    recipes: Iterable[str],
    base: str | None = None,
    set_: Iterable[str] | None = None,
    profile: str | None = None,
    platform: str = PLATFORM,
    compression: str = COMPRESSION,
) -> list[PlanRequest]:
    """The images that the options of a command describe. The project's builder.toml fills in what they leave open.

    Its base is taken where the recipe can be built on it, its parameters where the recipe has the layer; what is taken
    is printed. Raises BuilderError.
    """
    parse_sets(list(set_ or ()))
    given = [PlanRequest(recipe, base, tuple(set_ or ()), profile, platform, compression) for recipe in recipes]
    filled = [_with_choices(project, request) for request in given]
    words = (after.words()[2:] for before, after in zip(given, filled, strict=True) if after != before)
    for line in dict.fromkeys(map(shlex.join, words)):
        say(f"with {FILE}: {line}")
    return filled


def _with_choices(project: Project, request: PlanRequest) -> PlanRequest:
    choices = project.choices
    if choices.base is None and not choices.set:
        return request
    recipe = with_profile(project.recipe(request.recipe), request.profile, project.shared_profiles)
    base = request.base
    if base is None and choices.base is not None:
        with contextlib.suppress(UsageError):
            base = select_base(project, recipe, choices.base).name
    layers = {use.layer for use in recipe.layers}
    for layer in layers & choices.set.keys():
        check_written(project.layer(layer).definition, choices.set[layer], lambda: [project.roots[0] / FILE])
    given = {item.partition("=")[0] for item in request.sets}
    more = [text for layer, text in choices.sets() if layer in layers and text.partition("=")[0] not in given]
    return replace(request, base=base, sets=(*more, *request.sets))


def recipe_names(project: Project, named: Iterable[str] | None, *, every: bool, next: str) -> list[str]:
    """The recipes that a command works on: all of the project, or those named, each once.

    Raises UsageError when there is none. next: the command to suggest then.
    """
    if every and named:
        raise UsageError(
            "--all means every recipe, but one is named", id="all-and-recipe", next="leave one of them out"
        )
    names = project.recipe_names() if every else list(dict.fromkeys(named or ()))
    if not names:
        raise UsageError("no recipe given", id="recipe-not-given", next=f"{next}; builder list, for the names")
    return names


def check_tag(tag: str | None) -> None:
    """Raises UsageError when a tag cannot name an image."""
    if tag is not None:
        Reference.parse(tag)


def open_store() -> Store:
    """The store of this user: BUILDER_STORE, or the default folder."""
    return Store(default_root())
