"""Compares the lock with requests.yaml: missing, stale, edited or unrequested sections and sources. No network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from builder.errors import InvalidError
from builder.lock.findings import Kind, Problem
from builder.lock.seal import CHANGED, is_sealed, sealed, versions_digest
from builder.model.lock import (
    Deb,
    DebLock,
    DebRequest,
    LockRequests,
    LockSection,
    SourceLock,
    Wheel,
    WheelLock,
    WheelRequest,
)
from builder.model.lockfile import load_requests, load_section

REQUESTS = "requests.yaml"
SECTION = "sources"
"""The section of all sources."""

NO_SOURCES = sealed(SourceLock(name=SECTION, locked="1970-01-01T00:00:00Z", sources=()))
UNREQUESTED = "is locked, but no longer requested"

SourceKey = tuple[str, str]
"""Name and version of a source."""


def existing(folders: Sequence[Path], name: str) -> LockSection | InvalidError | None:
    """A section as it is in the first of the folders that has it; None when none has."""
    for folder in folders:
        path = folder / f"{name}.json"
        if path.exists():
            try:
                return load_section(path)
            except InvalidError as error:
                return error
    return None


def check(locks: Path, others: Sequence[Path] = ()) -> list[Problem]:
    """The problems of the sections in the folder `locks`, by section name; empty when all match their requests.

    others: folders with further sections, which requests may name under `without`.

    Every section that `requests.yaml` names must exist, be resolved from exactly that request and beside the current
    contents of the sections that it leaves out, and be unchanged since. Raises InvalidError when `requests.yaml` itself
    is not valid.
    """
    requests = load_requests(locks / REQUESTS, {path.stem for folder in others for path in folder.glob("*.json")})
    there: dict[str, LockSection | InvalidError] = {}
    for path in sorted(locks.glob("*.json")):
        try:
            there[path.stem] = load_section(path)
        except InvalidError as error:
            there[path.stem] = error
    beside = dict[str, LockSection | InvalidError | None](there)
    needed = {name for request in requested(requests).values() for name in request.without or ()}
    beside |= {name: existing(others, name) for name in sorted(needed - there.keys())}
    problems = []
    for name, request in requested(requests).items():
        kind: Kind = "debs" if isinstance(request, DebRequest) else "wheels"
        section = there.get(name)
        command = f"builder lock {name}"
        if section is None:
            problems.append(Problem(kind, name, "is not locked yet", command))
        elif isinstance(section, InvalidError):
            problems.append(Problem(kind, name, str(section), f"builder lock --update {name}"))
        elif what := stale(section, request, beside):
            problems.append(Problem(kind, name, what, command))
        else:
            for other in request.without or ():
                if what := _overlap(section, beside.get(other), other):
                    problems.append(Problem(kind, name, what, f"builder lock --update {name}"))
    for name in sorted(there.keys() - requested(requests).keys()):
        problems += _unrequested(name, there[name])
    problems += _sources(requests, there.get(SECTION))
    return sorted(problems, key=lambda problem: problem.name)


def requested(requests: LockRequests) -> dict[str, DebRequest | WheelRequest]:
    """All requests by section name, each after the sections that it leaves out; sources have no section each."""
    every: dict[str, DebRequest | WheelRequest] = {**requests.debs, **requests.wheels}

    def depth(name: str) -> int:
        return 1 + max((depth(other) for other in every[name].without or () if other in every), default=0)

    return dict(sorted(every.items(), key=lambda item: depth(item[0])))


def stale(
    section: LockSection, request: DebRequest | WheelRequest, others: Mapping[str, LockSection | InvalidError | None]
) -> str | None:
    """Why `section` does not answer `request`, or None. others: the existing sections, by name."""
    if not isinstance(section, DebLock | WheelLock) or type(section.request) is not type(request):
        return f"holds {section.kind}, which is not the requested kind"
    changed = [name for name in type(request).model_fields if getattr(section.request, name) != getattr(request, name)]
    if changed:
        return f"was resolved from another request: {', '.join(changed)} changed"
    if not is_sealed(section):
        return f"{section.name}.json {CHANGED}"
    for name in section.request.without or ():
        other = others.get(name)
        if isinstance(other, DebLock | WheelLock) and (section.beside or {}).get(name) != versions_digest(other):
            return f"was resolved beside another version of {name}"
    return None


def _overlap(section: LockSection, other: LockSection | InvalidError | None, name: str) -> str | None:
    """A section leaves out the packages of the section `name`: one in both means that the other section changed."""
    both = sorted(entries(other).keys() & entries(section).keys())
    return f"holds {', '.join(both)}, which {name} has too" if both else None


def _unrequested(name: str, section: LockSection | InvalidError) -> list[Problem]:
    if isinstance(section, InvalidError):
        return [Problem("section", name, str(section), f"correct or remove {name}.json")]
    if section.kind == "sources":
        return []
    return [Problem(section.kind, name, f"{REQUESTS} does not request it", f"add it there or remove {name}.json")]


def _sources(requests: LockRequests, section: LockSection | InvalidError | None) -> list[Problem]:
    if isinstance(section, InvalidError):
        return []  # `_unrequested` reports it.
    locked = section if isinstance(section, SourceLock) else NO_SOURCES
    problems = []
    for (name, version), what in stale_sources(requests, locked).items():
        command = f"builder lock --update {name}" if what == UNREQUESTED else f"builder lock {name}/{version}"
        problems.append(Problem("sources", f"{name}/{version}", what, command))
    return problems


def entries(section: LockSection | InvalidError | None) -> dict[str, Deb | Wheel]:
    """The packages of a section by name; none for sources and without a section."""
    if isinstance(section, DebLock):
        return {deb.package: deb for deb in section.packages}
    if isinstance(section, WheelLock):
        return {wheel.name: wheel for wheel in section.wheels}
    return {}


def locked_sources(locks: Path) -> SourceLock:
    """The section of sources; an empty one when there is none. Raises InvalidError."""
    path = locks / f"{SECTION}.json"
    if not path.exists():
        return NO_SOURCES
    section = load_section(path)
    if not isinstance(section, SourceLock):
        raise InvalidError(f"holds {section.kind}, not sources", id="lock-section-not-sources", where=str(path))
    return section


def stale_sources(requests: LockRequests, section: SourceLock) -> dict[SourceKey, str]:
    """Why a requested source is not locked as requested, or a locked one is not requested, by name and version.

    When the section was changed since it was sealed, every source in it is stale. Sources that no request names are
    pinned by hand and not compared.
    """
    there = {(source.name, source.version): source for source in section.sources}
    intact = is_sealed(section)
    found: dict[SourceKey, str] = {}
    for name, request in requests.sources.items():
        for version in request.versions:
            source = there.get((name, version))
            if source is None:
                found[name, version] = "is not locked yet"
            elif source.mirrors != request.mirrors_of(version) or (
                request.index is None and source.file != archive_name(name, version)
            ):
                found[name, version] = "was locked from another request: its mirrors changed"
            elif not intact:
                found[name, version] = f"sources.json {CHANGED}"
    for name, version in there:
        if name in requests.sources and version not in requests.sources[name].versions:
            found[name, version] = UNREQUESTED
    return found


def archive_name(name: str, version: str) -> str:
    """The file name of the archive of a source in git."""
    return f"{name}-{version}.tar.gz"
