"""What a name on the command line of `builder lock` means: a section, a base, a source or an option table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from builder.errors import UsageError
from builder.lock.freshness import REQUESTS, requested
from builder.model.base import Base
from builder.model.lock import LockRequests, SourceLock
from builder.model.lockfile import load_requests
from builder.project import Project, closest, is_bundled

GROUPS = ("bases", "sections", "sources")


@dataclass(frozen=True)
class Chosen:
    """Names by kind. sources: NAME or NAME/VERSION. options: versions of vLLM. tools: what the programs
    themselves run with. every: nothing was named.
    """

    sections: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    every: bool = False


class Lock:
    """All that can be locked in a project.

    locks: the folder with requests.yaml, the first on the search path that has one; None when there is none, or when
    `writing` and it is the installed package's own, which is never written to.
    """

    def __init__(self, project: Project, *, writing: bool = False) -> None:
        self.project = project
        roots = [root for root in project.roots if not (writing and is_bundled(root))]
        if not roots:
            raise UsageError(
                "the installed package's own lock is not changed",
                next="run this in a folder of your own that has recipes/, or let BUILDER_PROJECT name one",
            )
        self.root = roots[0]
        folders = (root / "recipes/locks" for root in roots)
        self.locks: Path | None = next((folder for folder in folders if (folder / REQUESTS).is_file()), None)

    @cached_property
    def requests(self) -> LockRequests:
        """What is requested; nothing where there are no requests."""
        return load_requests(self.locks / REQUESTS) if self.locks else LockRequests()

    @property
    def is_own(self) -> bool:
        """Whether the requests are those of the project itself: without names, nothing else is touched or asked."""
        return self.locks == self.root / "recipes/locks"

    def owns(self, section: str) -> bool:
        """Whether a section lies in the project itself."""
        return (self.root / "recipes/locks" / f"{section}.json").is_file()

    @cached_property
    def section_names(self) -> list[str]:
        """Sections that are requested, and those that are there without."""
        there = {path.stem for path in self.locks.glob("*.json")} if self.locks else set()
        return [*requested(self.requests), *sorted(there - set(requested(self.requests)) - {"sources"})]

    def registry_bases(self, own: bool = False) -> list[str]:
        """The bases that are images in a registry; `own`: only those of the project that is written to."""
        names = self.project.base_names()
        if own:
            names = [name for name in names if (self.root / "recipes/bases" / f"{name}.yaml").is_file()]
        return [name for name in names if self.project.base(name).pin is not None]

    def choose(self, names: Sequence[str]) -> Chosen:
        """Sort `names` by kind. Raises UsageError for an unknown one, naming those that are close.

        `bases`, `sections`, `sources` and `tools` mean all of them; a hermetic base means the sections that it is made
        of.
        """
        if not names:
            requests = self.requests if self.is_own else LockRequests()
            sections, sources = tuple(requested(requests)), tuple(requests.sources)
            return Chosen(sections, (), sources, every=True)
        found = Chosen()
        for name in names:
            one = self._one(name)
            found = replace(
                found,
                sections=_joined(found.sections, one.sections),
                bases=_joined(found.bases, one.bases),
                sources=_joined(found.sources, one.sources),
                options=_joined(found.options, one.options),
            )
        return found

    def _one(self, name: str) -> Chosen:
        if name.startswith("vllm=="):
            return Chosen(options=(name.removeprefix("vllm=="),))
        if name in GROUPS:
            return {
                "bases": lambda: Chosen(bases=tuple(self.registry_bases())),
                "sections": lambda: Chosen(sections=tuple(requested(self.requests))),
                "sources": lambda: Chosen(sources=tuple(self.requests.sources) or (name,)),
            }[name]()
        if name in self.section_names:
            return Chosen(sections=(name,))
        if name.partition("/")[0] in self.source_names:
            return Chosen(sources=(name,))
        if base := self._base(name):
            return Chosen(bases=(base.name,)) if base.pin else Chosen(sections=self._made_of(base))
        recipe = name in self.project.recipe_names()
        raise UsageError(
            f"there is nothing to lock with the name {name!r}",
            id="lock-name-unknown",
            cause=f"it is a recipe: its base is {self.project.recipe(name).base}" if recipe else self._closest(name),
            next="name a base, a section of recipes/locks/requests.yaml, a source, vllm==VERSION, or nothing for all",
        )

    @cached_property
    def source_names(self) -> list[str]:
        """Sources that are requested or locked, by name."""
        section = self.project.section("sources") if self.project.has_section("sources") else None
        locked = (source.name for source in section.sources) if isinstance(section, SourceLock) else ()
        return list(dict.fromkeys([*self.requests.sources, *locked]))

    def _base(self, name: str) -> Base | None:
        if name in self.project.base_names():
            return self.project.base(name)
        return next((base for base in self.project.bases.values() if name in base.aliases), None)

    def _made_of(self, base: Base) -> tuple[str, ...]:
        used = (use.set.get("lock") for use in base.layers)
        return tuple(dict.fromkeys(name for name in used if isinstance(name, str) and name in self.section_names))

    def _closest(self, name: str) -> str:
        known = [*self.section_names, *self.project.base_names(), *self.source_names, *GROUPS]
        known += [alias for base in self.project.bases.values() for alias in base.aliases]
        return closest(name, known)


def _joined(one: tuple[str, ...], other: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))
