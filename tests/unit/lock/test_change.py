"""lock.findings: many problems of a lock as one error."""

from __future__ import annotations

from builder.errors import BuilderError, NetworkError, PinError
from builder.lock.findings import Problem, raise_for
from tests.support.errors import fails

SILENT = Problem("base", "one", "no connection", "check the network", 6)


def test_the_cause_has_one_line_for_each_distinct_problem() -> None:
    with fails(NetworkError, "lock-unreachable") as caught:
        raise_for([SILENT, Problem("base", "two", "no\nconnection", "check the network", 6)], "2 are gone")
    assert (caught.value.cause, caught.value.next) == ("one, two: no connection", "check the network")


def test_next_joins_commands_for_a_shell() -> None:
    rows = [
        SILENT,
        Problem("debs", "a", "is not locked yet", "builder lock a"),
        Problem("debs", "b", "is not valid", "remove b.json"),
        Problem("debs", "c", "is not locked yet", "builder lock c"),
        Problem("debs", "c", "holds x", "builder lock c"),
    ]
    with fails(PinError, "lock-problems") as caught:
        raise_for(rows, "3 are not as requested")
    assert caught.value.cause.splitlines()[1].strip() == "a, c: is not locked yet"
    assert caught.value.next == "remove b.json; builder lock a && builder lock c"


def test_no_problems_raise_nothing() -> None:
    assert raised([]) is None
    assert isinstance(raised([SILENT]), NetworkError)


def raised(problems: list[Problem]) -> BuilderError | None:
    try:
        raise_for(problems, "1 is gone")
    except BuilderError as error:
        return error
    return None
