"""The results of `builder lock` as rows: Change, Problem, LockReport, and one error for many problems."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from builder.errors import BuilderError, ExitCode, NetworkError, PinError

Kind = Literal["debs", "wheels", "sources", "section", "base", "options"]
"""section: a section of unknown kind: it cannot be read or is not requested."""


@dataclass(frozen=True)
class Change:
    """A changed item of the lock: old is None for a new item, new is None for a removed item.

    kind and name: the section, base or option table. item: the package, source or digest. Equal versions mean that
    another field changed, such as the hash of the file.
    """

    kind: Kind
    name: str
    item: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class Problem:
    """A problem of a section, base, source or option table. next: the command that solves it. code: exit code."""

    kind: Kind
    name: str
    what: str
    next: str
    code: int = int(ExitCode.PIN)


@dataclass
class LockReport:
    """changes: what a run wrote. failed: what it could not resolve and left unchanged."""

    changes: list[Change] = field(default_factory=list)
    failed: list[Problem] = field(default_factory=list)


def problem(kind: Kind, name: str, error: BuilderError) -> Problem:
    """An error as a row, without the name: the row has a column for it."""
    what = error.what.removeprefix(f"{name}: ")
    parts = [f"{what} ({error.where})" if error.where else what, error.cause]
    return Problem(kind, name, "; ".join(part for part in parts if part), error.next, int(error.code))


def raise_for(problems: list[Problem], what: str) -> None:
    """Raise one error for all problems, if there are any: NetworkError when all are of the network, else PinError.

    Its cause has one line for each distinct problem, with the names of all sections and bases that have it.
    """
    if not problems:
        return
    wrong = [row for row in problems if row.code != ExitCode.NETWORK]
    names: dict[str, list[str]] = {}
    for row in problems:
        names.setdefault(" ".join(row.what.split()), []).append(row.name)
    cause = "\n         ".join(f"{', '.join(dict.fromkeys(who))}: {text}" for text, who in names.items())
    next = _steps(row.next for row in wrong or problems)
    if wrong:
        raise PinError(what, id="lock-problems", cause=cause, next=next)
    raise NetworkError(what, id="lock-unreachable", cause=cause, next=next)


def _steps(texts: Iterable[str]) -> str:
    """Each step once: advice first, then the commands joined for a shell."""
    steps = [step for step in dict.fromkeys(texts) if step]
    commands = [step for step in steps if step.startswith("builder ")]
    advice = [step for step in steps if step not in commands]
    return "; ".join([*advice, *([" && ".join(commands)] if commands else [])])
