"""PlanRequest: the image that --recipe, --base, --set, --profile, --platform and --compression describe."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from builder.errors import UsageError
from builder.model.base import Base
from builder.model.plan import Plan
from builder.model.recipe import Recipe
from builder.model.reference import Reference
from builder.model.variant import with_profile
from builder.oci.format import MEDIA_TYPES
from builder.plan.bases import select_base
from builder.plan.resolve import parse_sets, resolve
from builder.project import Project
from builder.store.store import Store, default_root

PLATFORM = "linux/arm64"
COMPRESSION = "zstd"


@dataclass(frozen=True)
class PlanRequest:
    """The image that these options describe. sets: one LAYER.PARAMETER=VALUE each."""

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
                cause=f"one of {', '.join(MEDIA_TYPES)}",
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

    def words(self) -> list[str]:
        """These options as arguments of a command line."""
        words = ["--recipe", self.recipe]
        words += ["--base", self.base] if self.base else []
        words += [word for item in self.sets for word in ("--set", item)]
        return words + (["--profile", self.profile] if self.profile else [])


def recipe_names(project: Project, named: Iterable[str] | None, *, every: bool, next: str) -> list[str]:
    """The recipes that a command works on: all of the project, or those named, each once.

    Raises UsageError when there is none. next: the command to suggest then.
    """
    names = project.recipe_names() if every else list(dict.fromkeys(named or ()))
    if not names:
        raise UsageError("no recipe given", id="recipe-not-given", next=f"{next}; builder list shows the names")
    return names


def check_tag(tag: str | None) -> None:
    """Raises UsageError when a tag cannot name an image."""
    if tag is not None:
        Reference.parse(tag)


def open_store() -> Store:
    """The store of this user: BUILDER_STORE, or the default folder."""
    return Store(default_root())
