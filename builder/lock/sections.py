"""Resolves sections of Debian packages and wheels, writes those that changed, and lists the changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from builder.errors import BuilderError, InvalidError, PinError, UsageError
from builder.inputs import hosts
from builder.lock.debs import resolve_debs
from builder.lock.findings import Change, Kind, LockReport, problem
from builder.lock.freshness import REQUESTS, entries, existing, requested, stale
from builder.lock.seal import is_sealed, sealed, versions_digest
from builder.lock.selection import LockContext
from builder.lock.wheels import resolve_wheels
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
from builder.model.lockfile import write_section
from builder.text import closest

Request = DebRequest | WheelRequest


def resolve(name: str, request: Request, folders: Sequence[Path]) -> LockSection:
    """The section that `request` resolves to today, from the network; nothing is written.

    folders: where the sections are that it leaves out.
    """
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    where = str(folders[0] / f"{name}.json")
    without = {other: existing(folders, other) for other in request.without or ()}
    for section in without.values():
        if isinstance(section, InvalidError):
            raise section
    if isinstance(request, DebRequest):
        debs: list[Deb] = []
        for other, section in without.items():
            if not isinstance(section, DebLock):
                raise InvalidError(f"{other} holds no Debian packages", id="lock-section-not-debs", where=where)
            debs += section.packages
        packages = resolve_debs(request, hosts.deb_roots(), debs)
        return DebLock(name=name, locked=now, request=request, packages=packages)
    present: list[Wheel] = []
    for other, section in without.items():
        if not isinstance(section, WheelLock):
            raise InvalidError(f"{other} holds no wheels", id="lock-section-not-wheels", where=where)
        present += section.wheels
    wheels = resolve_wheels(request, present, hosts.wheel_indexes()[0])
    return WheelLock(name=name, locked=now, request=request, wheels=wheels)


def update_sections(
    context: LockContext, report: LockReport, resolver: Callable[[str, Request, Sequence[Path]], LockSection] = resolve
) -> None:
    """Resolve the selected sections and write those that changed; `report` receives changes and failures.

    Without `context.update` only stale sections. Sections that leave out a selected section (`without`) are
    selected too. A section whose packages stay the same keeps its `locked` time. Raises UsageError for an unknown name,
    and the errors of resolving unless `context.keep_going`.
    """
    locks = context.locks
    assert locks is not None
    requests = context.requests
    for name in select(requests, context.selection.sections):
        request = requested(requests)[name]
        found = existing([locks], name)
        old = None if isinstance(found, InvalidError) else found
        without = {other: existing(context.folders, other) for other in request.without or ()}
        if not context.update and old is not None and stale(old, request, without) is None:
            continue
        context.say(f"resolving {name}")
        try:
            new = resolver(name, request, context.folders)
        except BuilderError as error:
            if not context.keep_going:
                raise
            kind: Kind = "debs" if isinstance(request, DebRequest) else "wheels"
            report.failed.append(problem(kind, name, error))
            continue
        changes = _changes(old, new)
        if old is not None and not changes and is_sealed(old):
            new = new.model_copy(update={"locked": old.locked})
        beside = {
            other: versions_digest(there) for other, there in without.items() if isinstance(there, DebLock | WheelLock)
        }
        if beside:
            new = new.model_copy(update={"beside": beside})
        new = sealed(new)
        if old != new:
            write_section(locks / f"{name}.json", new)
        report.changes += changes


def select(requests: LockRequests, names: Sequence[str]) -> list[str]:
    """The sections to resolve (all when `names` is empty), each after the sections that it leaves out.

    Raises UsageError for an unknown name.
    """
    known = requested(requests)
    for name in names:
        if name not in known:
            raise UsageError(
                f"there is no lock section {name!r} in {REQUESTS}",
                id="lock-section-unknown",
                cause=closest(name, known),
            )
    wanted = set(names) or set(known)
    for name, request in known.items():
        wanted |= {name} if wanted & set(request.without or ()) else set()
    return [name for name in known if name in wanted]


def _changes(old: LockSection | None, new: LockSection) -> list[Change]:
    before, after = _entries(old), _entries(new)
    rows = []
    for package in sorted(before.keys() | after.keys()):
        was, now = before.get(package), after.get(package)
        if was != now:
            versions = (entry.version if entry else None for entry in (was, now))
            rows.append(Change(new.kind, new.name, package, *versions))
    return rows


def _entries(section: LockSection | None) -> dict[str, Deb | Wheel]:
    if isinstance(section, SourceLock):
        raise PinError(f"{section.name} holds sources, not packages", id="lock-section-not-packages")
    return entries(section)
