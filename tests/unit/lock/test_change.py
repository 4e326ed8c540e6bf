"""Many problems of a lock as one error."""

from __future__ import annotations

from builder.errors import NetworkError, PinError
from builder.lock.findings import Problem, raise_for
from tests.support.errors import fails

SILENT = Problem("base", "one", "no connection", "check the network", 6)


def test_one_line_for_each_thing_that_is_wrong() -> None:
    with fails(NetworkError, "lock-unreachable") as caught:
        raise_for([SILENT, Problem("base", "two", "no\nconnection", "check the network", 6)], "2 are gone")
    assert (caught.value.cause, caught.value.next) == ("one, two: no connection", "check the network")


def test_commands_can_be_run_as_they_stand() -> None:
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


def test_nothing_wrong_is_no_error() -> None:
    raise_for([], "0 are gone")
