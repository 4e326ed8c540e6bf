"""Whether the lock is what was asked for: a comparison of files, without network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from builder.errors import InvalidError
from builder.lock.load import load_requests, load_section
from builder.model.lock import DebLock, DebRequest, LockRequests, LockSection, WheelLock, WheelRequest

REQUESTS = "requests.yaml"


@dataclass(frozen=True)
class Problem:
    """What is wrong with one section, and the command that mends it."""

    section: str
    what: str
    next: str


def check(locks: Path) -> list[Problem]:
    """What is wrong with the sections in the folder `locks`, by section name; empty when all is as requested.

    Every section that `requests.yaml` names must be there and have been resolved from exactly that request. Raises
    InvalidError when `requests.yaml` itself is not valid.
    """
    requests = load_requests(locks / REQUESTS)
    problems = []
    for name, request in requested(requests).items():
        mend = f"builder lock {name}"
        path = locks / f"{name}.json"
        if not path.exists():
            problems.append(Problem(name, "is not locked yet", mend))
            continue
        try:
            section = load_section(path)
        except InvalidError as error:
            problems.append(Problem(name, str(error), f"builder lock --update {name}"))
            continue
        if what := stale(section, request):
            problems.append(Problem(name, what, mend))
            continue
        for other in request.without if isinstance(request, WheelRequest) else ():
            if what := _overlap(section, locks / f"{other}.json"):
                problems.append(Problem(name, what, f"builder lock --update {name}"))
    known = set(requested(requests))
    for path in sorted(locks.glob("*.json")):
        if path.stem not in known:
            problems += _unrequested(path)
    return sorted(problems, key=lambda problem: problem.section)


def requested(requests: LockRequests) -> dict[str, DebRequest | WheelRequest]:
    """All requests by section name, those first that others build upon."""
    wheels = dict(sorted(requests.wheels.items(), key=lambda item: len(item[1].without) > 0))
    return {**requests.debs, **wheels}


def stale(section: LockSection, request: DebRequest | WheelRequest) -> str | None:
    """Why `section` is not the answer to `request`, or None."""
    if not isinstance(section, DebLock | WheelLock) or type(section.request) is not type(request):
        return f"holds {section.kind}, not what was requested"
    changed = [name for name in type(request).model_fields if getattr(section.request, name) != getattr(request, name)]
    return f"was resolved from another request: {', '.join(changed)} changed" if changed else None


def _overlap(section: LockSection, other: Path) -> str | None:
    """A section with `without` leaves out what the other one has: a wheel in both means that the other one changed."""
    if not isinstance(section, WheelLock) or not other.exists():
        return None
    try:
        base = load_section(other)
    except InvalidError:
        return None
    names = {wheel.name for wheel in base.wheels} if isinstance(base, WheelLock) else set()
    both = sorted(names & {wheel.name for wheel in section.wheels})
    return f"holds {', '.join(both)}, which {other.stem} has too" if both else None


def _unrequested(path: Path) -> list[Problem]:
    try:
        section = load_section(path)
    except InvalidError as error:
        return [Problem(path.stem, str(error), f"correct or remove {path.name}")]
    if section.kind == "sources":
        return []
    return [Problem(path.stem, f"{REQUESTS} does not ask for it", f"add it there or remove {path.name}")]
