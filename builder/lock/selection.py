"""LockContext: one run of `builder lock`; maps names on the command line to sections, bases and sources."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from builder.errors import UsageError
from builder.folders import is_bundled
from builder.lock.freshness import REQUESTS, requested
from builder.model.base import Base
from builder.model.lock import LockRequests, SourceLock
from builder.model.lockfile import load_requests
from builder.project import Project
from builder.store.claims import try_lock
from builder.text import closest

GROUPS = ("bases", "sections", "sources")


@dataclass(frozen=True)
class Selection:
    """Names by kind. sources: NAME or NAME/VERSION. options: versions of vLLM. all: no name was given."""

    sections: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    all: bool = False


class LockContext:
    """One run of `builder lock` over a project.

    root: the project folder that is written to. locks: the folder with requests.yaml, the first on the search path that
    has one; None when there is none, or when `writing` and it belongs to the installed package, which is never written
    to. selection: the sections, bases, sources and option tables that `names` select. update: also resolve entries that
    are locked already. keep_going: record failures and continue. remote: a check also asks registries and mirrors. say:
    receives a line for each step.

    Raises UsageError for an unknown name, and when `writing` without a project of one's own.
    """

    def __init__(
        self,
        project: Project,
        names: Sequence[str] = (),
        *,
        writing: bool = False,
        update: bool = False,
        keep_going: bool = False,
        remote: bool = False,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.project = project
        self.update = update
        self.keep_going = keep_going
        self.remote = remote
        self.say = say
        roots = [root for root in project.roots if not (writing and is_bundled(root))]
        if not roots:
            raise UsageError(
                "the lock of the installed package cannot be changed",
                id="lock-project-installed",
                next="run this in a folder of your own that has recipes/, or set BUILDER_PROJECT to one",
            )
        self.root = roots[0]
        folders = (root / "recipes/locks" for root in roots)
        self.locks: Path | None = next((folder for folder in folders if (folder / REQUESTS).is_file()), None)
        self.selection = self.select(names)

    @cached_property
    def requests(self) -> LockRequests:
        """The contents of requests.yaml; empty without such a file."""
        return load_requests(self.locks / REQUESTS, self.project.section_names()) if self.locks else LockRequests()

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that may hold a section, in the order of the search: that of the requests first."""
        others = (root / "recipes/locks" for root in self.project.roots)
        return tuple(dict.fromkeys([*([self.locks] if self.locks else []), *others]))

    @property
    def is_own(self) -> bool:
        """Whether the requests belong to the project itself. Otherwise a run without names does not touch them."""
        return self.locks == self.root / "recipes/locks"

    def owns(self, section: str) -> bool:
        """Whether the file of a section is in the project itself."""
        return (self.root / "recipes/locks" / f"{section}.json").is_file()

    @cached_property
    def section_names(self) -> list[str]:
        """The requested sections, then those that exist without a request."""
        there = {path.stem for path in self.locks.glob("*.json")} if self.locks else set()
        return [*requested(self.requests), *sorted(there - set(requested(self.requests)) - {"sources"})]

    @cached_property
    def source_names(self) -> list[str]:
        """Sources that are requested or locked, by name."""
        section = self.project.section("sources") if self.project.has_section("sources") else None
        locked = (source.name for source in section.sources) if isinstance(section, SourceLock) else ()
        return list(dict.fromkeys([*self.requests.sources, *locked]))

    def registry_bases(self, own: bool = False) -> list[str]:
        """The bases that are images in a registry; `own`: only those in the project that is written to."""
        names = self.project.base_names()
        if own:
            names = [name for name in names if (self.root / "recipes/bases" / f"{name}.yaml").is_file()]
        return [name for name in names if self.project.base(name).pin is not None]

    def is_pinned(self, base: str) -> bool:
        """Whether a base has a pin with the digest of its manifest."""
        pin = self.project.base(base).pin
        return pin is not None and pin.manifest is not None

    def select(self, names: Sequence[str]) -> Selection:
        """Sort `names` by kind. Raises UsageError for an unknown name, with the closest known one.

        `bases`, `sections` and `sources` mean all of a kind; a hermetic base means the sections that its layers use.
        """
        if not names:
            requests = self.requests if self.is_own else LockRequests()
            return Selection(tuple(requested(requests)), (), tuple(requests.sources), all=True)
        found = Selection()
        for name in names:
            named = self._select_one(name)
            found = replace(
                found,
                sections=_union(found.sections, named.sections),
                bases=_union(found.bases, named.bases),
                sources=_union(found.sources, named.sources),
                options=_union(found.options, named.options),
            )
        return found

    def _select_one(self, name: str) -> Selection:  # noqa: PLR0911
        if name.startswith("vllm=="):
            return Selection(options=(name.removeprefix("vllm=="),))
        if name == "bases":
            return Selection(bases=tuple(self.registry_bases()))
        if name == "sections":
            return Selection(sections=tuple(requested(self.requests)))
        if name == "sources":
            return Selection(sources=tuple(self.requests.sources) or (name,))
        if name in self.section_names:
            return Selection(sections=(name,))
        if name.partition("/")[0] in self.source_names:
            return Selection(sources=(name,))
        if base := self._base(name):
            return Selection(bases=(base.name,)) if base.pin else Selection(sections=self._sections_of(base))
        recipe = name in self.project.recipe_names()
        raise UsageError(
            f"there is nothing to lock with the name {name!r}",
            id="lock-name-unknown",
            cause=f"it is a recipe: its base is {self.project.recipe(name).base}" if recipe else self._closest(name),
            next="name a base, a section of recipes/locks/requests.yaml, a source, vllm==VERSION, or nothing for all",
        )

    def _base(self, name: str) -> Base | None:
        if name in self.project.base_names():
            return self.project.base(name)
        return next((base for base in self.project.bases.values() if name in base.aliases), None)

    def _sections_of(self, base: Base) -> tuple[str, ...]:
        used = (use.set.get("lock") for use in base.layers)
        return tuple(dict.fromkeys(name for name in used if isinstance(name, str) and name in self.section_names))

    def _closest(self, name: str) -> str:
        known = [*self.section_names, *self.project.base_names(), *self.source_names, *GROUPS]
        known += [alias for base in self.project.bases.values() for alias in base.aliases]
        return closest(name, known)


def _union(one: tuple[str, ...], other: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))


@contextlib.contextmanager
def alone(root: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Wait for other commands that write to the project at `root`, and make later ones wait; no file is left behind.

    Each reads the requests and sections that it then replaces. say: receives a line when there is one. Without effect
    on a file system without locks. Raises OSError.
    """
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        waits = False
        while not _try_lock(handle):
            if not waits:
                say(f"waits for another command that writes to {root.resolve()}")
            waits = True
            time.sleep(0.05)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    with contextlib.suppress(OSError):
        return try_lock(handle)
    return True
