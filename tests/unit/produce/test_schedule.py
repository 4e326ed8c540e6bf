"""produce.schedule: the order of tasks, parallel runs, cancellation and the first error; without engines or network."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import pytest

from builder.errors import Cancelled
from builder.produce.schedule import Schedule

LONG = 10
"""Seconds after which a test that waits has failed."""


class Log(list[str]):
    """Names of functions in the order in which they ran."""

    def function(self, name: str) -> Callable[[], None]:
        return lambda: self.append(name)


def test_ready_tasks_start_in_the_order_in_which_they_were_added() -> None:
    log, schedule = Log(), Schedule(workers=1)
    for name in "cab":
        schedule.add(log.function(name))
    schedule.run()
    assert log == ["c", "a", "b"]


def test_a_task_starts_after_its_predecessors() -> None:
    log, schedule = Log(), Schedule(workers=4)
    first = schedule.add(log.function("first"))
    second = schedule.add(log.function("second"), after=[first])
    schedule.add(log.function("third"), after=[first, second])
    schedule.run()
    assert log == ["first", "second", "third"]


def test_a_task_says_that_it_waits_when_all_its_inputs_have_come_before_its_turn() -> None:
    log, schedule = Log(), Schedule(workers=1)
    free = threading.Event()

    def feed() -> None:
        for name in "xyy":
            schedule.arrived(name)
        log.append("all")
        free.set()

    schedule.add(lambda: log.append("first" if free.wait(LONG) else "late"), waits=log.function("never"))
    schedule.add(log.function("second"), missing=["x", "y"], waits=log.function("second waits"))
    schedule.run([feed])
    assert log == ["second waits", "all", "first", "second"]


def test_a_task_that_starts_at_once_does_not_wait() -> None:
    log, schedule = Log(), Schedule(workers=1)
    schedule.add(log.function("only"), missing=["x"], waits=log.function("waits"))
    schedule.run([lambda: schedule.arrived("x")])
    assert log == ["only"]


def test_a_task_starts_when_its_last_input_arrives() -> None:
    log, schedule = Log(), Schedule(workers=4)
    done = threading.Event()
    schedule.add(log.function("none"))

    def both() -> None:
        log.append("both")
        done.set()

    schedule.add(both, missing=["x", "y"])

    def feed() -> None:
        log.append("x")
        schedule.arrived("x")
        assert not done.wait(0.1)
        log.append("y")
        schedule.arrived("y")
        assert done.wait(LONG)

    schedule.run([feed])
    assert [name for name in log if name != "none"] == ["x", "y", "both"]
    assert log.count("none") == 1


def test_a_task_needs_both_its_inputs_and_its_predecessors() -> None:
    log, schedule = Log(), Schedule(workers=4)
    arrived = threading.Event()

    def late() -> None:
        assert arrived.wait(LONG)
        log.append("first")

    def feed() -> None:
        schedule.arrived("x")
        arrived.set()

    first = schedule.add(late)
    schedule.add(log.function("second"), missing=["x"], after=[first])
    schedule.run([feed])
    assert log == ["first", "second"]


def test_tasks_run_in_parallel() -> None:
    schedule, barrier = Schedule(workers=3), threading.Barrier(3)
    together: list[int] = []

    def meet() -> None:
        together.append(barrier.wait(LONG))

    for _ in range(3):
        schedule.add(meet)
    schedule.run()
    assert sorted(together) == [0, 1, 2]


def test_no_more_tasks_run_at_once_than_there_are_workers() -> None:
    schedule, running, most, lock = Schedule(workers=2), [0], [0], threading.Lock()

    def work() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        threading.Event().wait(0.01)
        with lock:
            running[0] -= 1

    for _ in range(8):
        schedule.add(work)
    schedule.run()
    assert 1 <= most[0] <= 2


def failing(error: BaseException) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


def test_the_first_error_is_raised_and_no_other_task_starts() -> None:
    log, schedule = Log(), Schedule(workers=1)
    error = ValueError("first")
    first = schedule.add(failing(error))
    schedule.add(log.function("ready"))
    schedule.add(log.function("after"), after=[first])
    with pytest.raises(ValueError, match="first") as caught:
        schedule.run()
    assert caught.value is error
    assert log == []
    assert schedule.cancelled.is_set()


def test_an_error_cancels_running_tasks_and_feeds_and_hides_their_cancelled() -> None:
    schedule, ended = Schedule(workers=2), []
    started = threading.Barrier(3)

    def patient(name: str) -> None:
        started.wait(LONG)
        assert schedule.cancelled.wait(LONG)
        ended.append(name)
        schedule.check()

    schedule.add(lambda: patient("task"))

    def fail() -> None:
        started.wait(LONG)
        raise OSError("the error")

    schedule.add(fail)
    with pytest.raises(OSError, match="the error"):
        schedule.run([lambda: patient("feed")])
    assert sorted(ended) == ["feed", "task"]


def test_an_error_of_a_feed_is_raised_and_waiting_tasks_never_start() -> None:
    log, schedule = Log(), Schedule(workers=2)
    schedule.add(log.function("waits"), missing=["x"])
    with pytest.raises(ValueError, match="feed"):
        schedule.run([failing(ValueError("feed"))])
    assert log == []


def test_a_task_that_raises_cancelled_cancels_the_schedule() -> None:
    schedule = Schedule(workers=1)
    schedule.add(failing(Cancelled()))
    with pytest.raises(Cancelled):
        schedule.run()


def interrupt() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_an_interrupt_of_the_caller_cancels_everything() -> None:
    schedule, ended = Schedule(workers=1), []

    def patient() -> None:
        interrupt()
        assert schedule.cancelled.wait(LONG)
        ended.append(True)

    schedule.add(patient)
    with pytest.raises(KeyboardInterrupt):
        schedule.run()
    assert ended == [True]


@pytest.mark.parametrize("kind", ["task", "feed"])
def test_neither_an_interrupt_nor_an_error_waits_for_what_does_not_end(kind: str) -> None:
    for end, expected in ((interrupt, KeyboardInterrupt), (failing(OSError()), OSError)):
        schedule, never = Schedule(workers=2), threading.Event()
        schedule.add(end)
        if kind == "task":
            schedule.add(lambda never=never: never.wait(LONG))  # type: ignore[misc]
        start = time.monotonic()
        with pytest.raises(expected):
            schedule.run([lambda never=never: never.wait(LONG)] if kind == "feed" else [])  # type: ignore[misc]
        assert time.monotonic() - start < LONG / 3
        never.set()


def test_an_input_that_no_feed_delivers_is_a_bug() -> None:
    schedule = Schedule(workers=1)
    schedule.add(lambda: None, missing=["x"])
    with pytest.raises(AssertionError, match="no feed delivers"):
        schedule.run()


def test_a_schedule_without_tasks_ends() -> None:
    schedule = Schedule(workers=1)
    schedule.run()
    assert not schedule.cancelled.is_set()
