"""Whether the lock is what was asked for: a comparison of files, without network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from builder.errors import InvalidError
from builder.lock.findings import Kind, Problem
from builder.lock.seal import CHANGED, held, is_whole
from builder.model.lock import DebLock, DebRequest, LockRequests, LockSection, SourceLock, WheelLock, WheelRequest
from builder.model.lockfile import load_requests, load_section

REQUESTS = "requests.yaml"


def check(locks: Path) -> list[Problem]:
    """What is wrong with the sections in the folder `locks`, by section name; empty when all is as requested.

    Every section that `requests.yaml` names must be there, have been resolved from exactly that request and beside what
    the sections that it leaves out hold now, and not have been changed since. Raises InvalidError when `requests.yaml`
    itself is not valid.
    """
    requests = load_requests(locks / REQUESTS)
    there: dict[str, LockSection | InvalidError] = {}
    for path in sorted(locks.glob("*.json")):
        try:
            there[path.stem] = load_section(path)
        except InvalidError as error:
            there[path.stem] = error
    problems = []
    for name, request in requested(requests).items():
        kind: Kind = "debs" if isinstance(request, DebRequest) else "wheels"
        section = there.get(name)
        mend = f"builder lock {name}"
        if section is None:
            problems.append(Problem(kind, name, "is not locked yet", mend))
        elif isinstance(section, InvalidError):
            problems.append(Problem(kind, name, str(section), f"builder lock --update {name}"))
        elif what := stale(section, request, there):
            problems.append(Problem(kind, name, what, mend))
        else:
            for other in request.without if isinstance(request, WheelRequest) else ():
                if what := _overlap(section, there.get(other), other):
                    problems.append(Problem(kind, name, what, f"builder lock --update {name}"))
    for name in sorted(there.keys() - requested(requests).keys()):
        problems += _unrequested(name, there[name])
    problems += _sources(requests, there.get("sources"))
    return sorted(problems, key=lambda problem: problem.name)


def requested(requests: LockRequests) -> dict[str, DebRequest | WheelRequest]:
    """All requests by section name, those first that others build upon; the sources have no section each."""
    wheels = dict(sorted(requests.wheels.items(), key=lambda item: len(item[1].without) > 0))
    return {**requests.debs, **wheels}


def stale(
    section: LockSection, request: DebRequest | WheelRequest, others: Mapping[str, LockSection | InvalidError | None]
) -> str | None:
    """Why `section` is not the answer to `request`, or None. others: the sections that there are, by name."""
    if not isinstance(section, DebLock | WheelLock) or type(section.request) is not type(request):
        return f"holds {section.kind}, not what was requested"
    changed = [name for name in type(request).model_fields if getattr(section.request, name) != getattr(request, name)]
    if changed:
        return f"was resolved from another request: {', '.join(changed)} changed"
    if not is_whole(section):
        return f"{section.name}.json {CHANGED}"
    if isinstance(section, WheelLock):
        for name in section.request.without:
            other = others.get(name)
            if isinstance(other, WheelLock) and section.beside.get(name) != held(other):
                return f"was resolved beside another {name} than there is now"
    return None


def _overlap(section: LockSection, base: LockSection | InvalidError | None, name: str) -> str | None:
    """A section with `without` leaves out what the other one has: a wheel in both means that the other one changed."""
    if not isinstance(section, WheelLock) or not isinstance(base, WheelLock):
        return None
    both = sorted({wheel.name for wheel in base.wheels} & {wheel.name for wheel in section.wheels})
    return f"holds {', '.join(both)}, which {name} has too" if both else None


def _unrequested(name: str, section: LockSection | InvalidError) -> list[Problem]:
    if isinstance(section, InvalidError):
        return [Problem("section", name, str(section), f"correct or remove {name}.json")]
    if section.kind == "sources":
        return []
    return [Problem(section.kind, name, f"{REQUESTS} does not ask for it", f"add it there or remove {name}.json")]


def _sources(requests: LockRequests, section: LockSection | InvalidError | None) -> list[Problem]:
    from builder.lock.sourcelist import GONE, NOTHING, stale_sources

    if isinstance(section, InvalidError):
        return []  # told already
    locked = section if isinstance(section, SourceLock) else NOTHING
    problems = []
    for (name, version), what in stale_sources(requests, locked).items():
        mend = f"builder lock --update {name}" if what == GONE else f"builder lock {name}/{version}"
        problems.append(Problem("sources", f"{name}/{version}", what, mend))
    return problems
