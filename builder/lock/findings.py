"""What a look at the lock finds: changes, failures and problems, as rows of a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from builder.errors import BuilderError, ExitCode, NetworkError, PinError

Kind = Literal["debs", "wheels", "sources", "section", "base", "options"]
"""section: one that cannot be read."""


@dataclass(frozen=True)
class Change:
    """One item of something locked, before (None: was not there) and after (None: is no longer there).

    kind and name: the section, base or option table. item: the package, source or digest. Items with equal versions
    have another file.
    """

    kind: Kind
    name: str
    item: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class Problem:
    """What is wrong with something locked, the command that mends it, and the exit code that it has."""

    kind: Kind
    name: str
    what: str
    next: str
    code: int = int(ExitCode.PIN)


def problem(kind: Kind, name: str, error: BuilderError) -> Problem:
    """An error as a row; the name stands in a column of its own."""
    what = error.what.removeprefix(f"{name}: ")
    parts = [f"{what} ({error.where})" if error.where else what, error.cause]
    return Problem(kind, name, "; ".join(part for part in parts if part), error.next, int(error.code))


def raise_for(problems: list[Problem], what: str) -> None:
    """Raise one error for all problems, if there are any: of the network only when nothing is known to be wrong.

    Its cause has a line for each thing that is wrong, with the names of all that it is wrong with.
    """
    if not problems:
        return
    wrong = [row for row in problems if row.code != ExitCode.NETWORK]
    error = PinError if wrong else NetworkError
    names: dict[str, list[str]] = {}
    for row in problems:
        names.setdefault(" ".join(row.what.split()), []).append(row.name)
    raise error(
        what,
        cause="\n         ".join(f"{', '.join(dict.fromkeys(who))}: {text}" for text, who in names.items()),
        next=_steps(row.next for row in wrong or problems),
    )


def _steps(texts: Iterable[str]) -> str:
    """What to do next, each step once: commands as a shell takes them, after advice that is none."""
    steps = [step for step in dict.fromkeys(texts) if step]
    commands = [step for step in steps if step.startswith("builder ")]
    advice = [step for step in steps if step not in commands]
    return "; ".join([*advice, *([" && ".join(commands)] if commands else [])])
