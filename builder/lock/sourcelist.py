"""The sources that are locked, beside those that are requested. No network."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from builder.errors import InvalidError, UsageError
from builder.lock.findings import Change
from builder.lock.seal import CHANGED, is_whole, sealed
from builder.model.lock import LockRequests, Source, SourceLock
from builder.model.lockfile import load_section

SECTION = "sources"

NOTHING = sealed(SourceLock(name=SECTION, locked="1970-01-01T00:00:00Z", sources=()))

GONE = "is locked, but not requested any more"

Wanted = tuple[str, str]
"""Name and version."""


def locked_sources(locks: Path) -> SourceLock:
    """The section of sources; an empty one where there is none. Raises InvalidError."""
    path = locks / f"{SECTION}.json"
    if not path.exists():
        return NOTHING
    section = load_section(path)
    if not isinstance(section, SourceLock):
        raise InvalidError(f"holds {section.kind}, not sources", where=str(path))
    return section


def stale_sources(requests: LockRequests, section: SourceLock) -> dict[Wanted, str]:
    """Why a requested source is not locked as requested, or a locked one not requested, by name and version.

    When the section was changed since it was sealed, none of them is known to be what was resolved. Sources that are
    not requested at all are pinned by hand, and nothing is said of them.
    """
    there = {(source.name, source.version): source for source in section.sources}
    whole = is_whole(section)
    found: dict[Wanted, str] = {}
    for name, request in requests.sources.items():
        for version in request.versions:
            source = there.get((name, version))
            if source is None:
                found[name, version] = "is not locked yet"
            elif (source.file, source.mirrors) != (archive_name(name, version), request.mirrors_of(version)):
                found[name, version] = "was locked from another request: its mirrors changed"
            elif not whole:
                found[name, version] = f"sources.json {CHANGED}"
    for name, version in there:
        if name in requests.sources and version not in requests.sources[name].versions:
            found[name, version] = GONE
    return found


def wanted_sources(requests: LockRequests, names: Sequence[str]) -> list[Wanted]:
    """The requested sources that `names` (NAME or NAME/VERSION) mean. Raises UsageError."""
    found: dict[Wanted, None] = {}
    for text in names:
        name, _, version = text.partition("/")
        request = requests.sources.get(name)
        if request is None:
            raise UsageError(
                f"{text} is pinned by hand", next="edit recipes/locks/sources.json, or ask for it in requests.yaml"
            )
        if version and version not in request.versions:
            known = ", ".join(request.versions)
            raise UsageError(f"no source {text} is requested", cause=f"requested are {known}", next="add the version")
        found |= dict.fromkeys((name, one) for one in request.versions if version in ("", one))
    return list(found)


def with_sources(
    requests: LockRequests, section: SourceLock, found: Sequence[Source]
) -> tuple[SourceLock, list[Change]]:
    """The section with the `found` sources in it, without those that are not requested any more; and what changed.

    Without changes it is the same one, sealed.
    """
    before = {(source.name, source.version): source for source in section.sources}
    dropped = {one for one, why in stale_sources(requests, section).items() if why == GONE}
    after = {one: source for one, source in before.items() if one not in dropped}
    after |= {(source.name, source.version): source for source in found}
    changes = []
    for one in sorted(before.keys() | after.keys()):
        for field in ("commit", "tree", "sha256", "mirrors"):
            old, new = _field(before.get(one), field), _field(after.get(one), field)
            if old != new:
                changes.append(Change("sources", "/".join(one), field, old, new))
    made = section.model_copy(update={"sources": tuple(after[one] for one in sorted(after))})
    if changes or not is_whole(section):
        made = made.model_copy(update={"locked": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")})
    return sealed(made), changes


def _field(source: Source | None, field: str) -> str | None:
    if source is None:
        return None
    value = getattr(source, field)
    return str(value) if field != "mirrors" else ", ".join(f"{mirror.kind}:{mirror.path}" for mirror in value)


def archive_name(name: str, version: str) -> str:
    """What the archive of a source is called here."""
    return f"{name}-{version}.tar.gz"
