"""Resolves lock sections anew and tells what changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from builder.errors import BuilderError, InvalidError, PinError, UsageError
from builder.inputs import hosts
from builder.lock.debs import resolve_debs
from builder.lock.findings import Change
from builder.lock.freshness import REQUESTS, requested, stale
from builder.lock.seal import held, is_whole, sealed
from builder.lock.wheels import resolve_wheels
from builder.model.lock import Deb, DebLock, DebRequest, LockRequests, LockSection, Wheel, WheelLock, WheelRequest
from builder.model.lockfile import load_requests, load_section, write_section
from builder.project import closest

Request = DebRequest | WheelRequest


def resolve(name: str, request: Request, locks: Path) -> LockSection:
    """The section that `request` resolves to today, from the network; nothing is written."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(request, DebRequest):
        return DebLock(name=name, locked=now, request=request, packages=resolve_debs(request, hosts.deb_roots()))
    present: list[Wheel] = []
    for other in request.without:
        section = load_section(locks / f"{other}.json")
        if not isinstance(section, WheelLock):
            raise InvalidError(f"{other} holds no wheels", where=str(locks / f"{name}.json"))
        present += section.wheels
    wheels = resolve_wheels(request, present, hosts.wheel_indexes()[0])
    return WheelLock(name=name, locked=now, request=request, wheels=wheels)


def update(
    locks: Path,
    names: Sequence[str] = (),
    *,
    fresh_too: bool = True,
    resolver: Callable[[str, Request, Path], LockSection] = resolve,
    started: Callable[[str], None] = lambda name: None,
    changed: Callable[[list[Change]], None] = lambda changes: None,
    failed: Callable[[str, BuilderError], None] | None = None,
) -> list[Change]:
    """Resolve the sections `names` (all when empty) and write those that changed; returns the changes, old to new.

    started: told a section's name before it is resolved; changed: its changes, once they are written; failed: told that
    it could not be resolved, after which the others go on (without it the first error ends everything).

    fresh_too: also sections that are not stale. A section that another one leaves out of itself (`without`) takes that
    other one along. A section whose packages stay the same keeps its `locked` time.
    Raises UsageError for an unknown name, and what resolving raises.
    """
    requests = load_requests(locks / REQUESTS)
    changes: list[Change] = []
    for name in select(requests, names):
        request = requested(requests)[name]
        old = _existing(locks / f"{name}.json")
        without = {other: _existing(locks / f"{other}.json") for other in getattr(request, "without", ())}
        if not fresh_too and old is not None and stale(old, request, without) is None:
            continue
        started(name)
        try:
            new = resolver(name, request, locks)
        except BuilderError as error:
            if failed is None:
                raise
            failed(name, error)
            continue
        found = _changes(old, new)
        if old is not None and not found and is_whole(old):
            new = new.model_copy(update={"locked": old.locked})
        if isinstance(new, WheelLock):
            beside = {other: held(there) for other, there in without.items() if isinstance(there, WheelLock)}
            new = new.model_copy(update={"beside": beside})
        new = sealed(new)
        if old != new:
            write_section(locks / f"{name}.json", new)
        changes += found
        changed(found)
    return changes


def select(requests: LockRequests, names: Sequence[str]) -> list[str]:
    """The sections to resolve, in an order in which each finds what it builds upon. Raises UsageError."""
    everything = requested(requests)
    for name in names:
        if name not in everything:
            raise UsageError(f"there is no lock section {name!r} in {REQUESTS}", cause=closest(name, everything))
    wanted = set(names) or set(everything)
    wanted |= {name for name, request in requests.wheels.items() if wanted & set(request.without)}
    return [name for name in everything if name in wanted]


def _existing(path: Path) -> LockSection | None:
    try:
        return load_section(path) if path.exists() else None
    except InvalidError:
        return None


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
    if isinstance(section, DebLock):
        return {deb.package: deb for deb in section.packages}
    if isinstance(section, WheelLock):
        return {wheel.name: wheel for wheel in section.wheels}
    if section is not None:
        raise PinError(f"{section.name} is not resolved, but pinned by hand")
    return {}
