"""`builder lock --check`, with and without `--remote`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from builder.errors import PinError
from builder.lock.coverage import unmet
from builder.lock.findings import Problem, problem
from builder.lock.freshness import REQUESTS, check, requested, stale
from builder.lock.seal import is_own_pin
from builder.lock.selection import Chosen, Lock
from builder.lock.sourcelist import SECTION
from builder.model.lockfile import load_section

if TYPE_CHECKING:
    from builder.model.inputs import Input


def local_problems(lock: Lock, chosen: Chosen, say: Callable[[str], None]) -> list[Problem]:
    """What is wrong with `chosen` as the files are: no network.

    Bases that are not pinned are a problem when they were named; without names they are only told: nobody need build
    on them. Raises InvalidError for a file that cannot be read.
    """
    problems = check(lock.locks) if lock.locks else []
    if chosen.every:
        problems += _own_sections(lock)
        problems += unmet(lock.project)
    else:
        sources = set(chosen.sources)
        problems = [
            row
            for row in problems
            if row.name in chosen.sections
            or (row.kind == "sources" and {row.name, row.name.partition("/")[0]} & sources)
            or (row.name == "sources" and sources)
        ]
    names = lock.registry_bases(own=True) if chosen.every else chosen.bases
    loose = [name for name in names if not _pinned(lock, name)]
    if chosen.every:
        if loose:
            say(f"{len(loose)} {'base is' if len(loose) == 1 else 'bases are'} not pinned: see builder list bases")
    else:
        problems += [Problem("base", name, "is not pinned", f"builder lock --update {name}") for name in loose]
    problems += [
        Problem("base", name, "its image or digests were changed since it was pinned", f"builder lock --update {name}")
        for name in names
        if (pin := lock.project.base(name).pin) and not is_own_pin(pin)
    ]
    return [*problems, *_options(chosen)]


def remote_problems(lock: Lock, chosen: Chosen, say: Callable[[str], None]) -> list[Problem]:
    """Which pinned bases and locked sources of `chosen` are gone or out of reach; without names, the project's own."""
    from builder.lock.availability import check_bases, check_sources

    names = lock.registry_bases(own=True) if chosen.every else chosen.bases
    bases = check_bases([lock.project.base(name) for name in names if _pinned(lock, name)])
    sources = check_sources(_sources(lock, chosen))
    for text in sources.warnings:
        say(f"warning: {text}")
    say(f"{bases.count} manifests and {sources.count} mirrors were asked")
    return [*bases.problems, *sources.problems]


def _sources(lock: Lock, chosen: Chosen) -> list[Input]:
    from builder.model.inputs import from_source
    from builder.model.lock import SourceLock

    section = lock.project.section(SECTION) if lock.project.has_section(SECTION) else None
    if not isinstance(section, SourceLock):
        return []
    every = (chosen.every and lock.owns(SECTION)) or SECTION in chosen.sources
    named = set(chosen.sources)
    return [
        from_source(source, section.locked)
        for source in section.sources
        if every or {source.name, f"{source.name}/{source.version}"} & named
    ]


def _own_sections(lock: Lock) -> list[Problem]:
    """What is wrong with the project's sections where the requests are another one's, or there are none."""
    asked = requested(lock.requests)
    problems = []
    for path in [] if lock.is_own else sorted((lock.root / "recipes/locks").glob("*.json")):
        request = asked.get(path.stem)
        if request is not None and (what := stale(load_section(path), request, {})):
            problems.append(Problem("section", path.stem, what, f"builder lock --update {path.stem}"))
        elif request is None and path.stem != SECTION:
            mend = f"ask for it in recipes/locks/{REQUESTS}, or remove {path.name}"
            problems.append(Problem("section", path.stem, f"no {REQUESTS} asks for it", mend))
    return problems


def _pinned(lock: Lock, name: str) -> bool:
    pin = lock.project.base(name).pin
    return pin is not None and pin.manifest is not None


def _options(chosen: Chosen) -> list[Problem]:
    if not chosen.options:
        return []
    from builder.knowledge.table import load_table

    problems = []
    for version in chosen.options:
        if load_table(version) is None:
            missing = PinError("has no option table", next=f"builder lock --update vllm=={version}")
            problems.append(problem("options", f"vllm=={version}", missing))
    return problems
