"""Calls functions in parallel threads, which neither an error nor a signal waits for without end."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Full, Queue
from threading import Condition, Event, Thread
from types import TracebackType
from typing import Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Failure = TypeVar("Failure", bound=Exception)

WORKERS = 24
"""Threads. More than processors, because the calls wait for the network."""
PATIENCE = 1.2
"""Seconds in which running calls end after an error or a signal. A call that waits for a silent server stays behind."""


class Pool:
    """Daemon threads that make the calls which `submit` gets, in order. Use it in a `with` statement.

    When a call or the body raises, no further call begins; at the end of the body running calls get PATIENCE seconds.
    """

    def __init__(self, workers: int) -> None:
        self._free = workers
        self._todo: deque[Callable[[], object]] = deque()
        self._running = 0
        self._failure: BaseException | None = None
        self._changed = Condition()

    def submit(self, call: Callable[[], object]) -> None:
        """Make a call as soon as a thread is free. Any thread may submit."""
        with self._changed:
            self._todo.append(call)
            if self._free:
                self._free -= 1
                Thread(target=self._work, daemon=True).start()

    def wait(self) -> None:
        """Return when all calls have ended. Raises the first exception of a call, at once."""
        with self._changed:
            while (self._todo or self._running) and self._failure is None:
                # With a limit: a signal that the kernel gives to another thread is handled when this one wakes.
                self._changed.wait(0.5)
            if self._failure is not None:
                raise self._failure

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._todo or self._failure is not None:
                    self._free += 1
                    return
                call = self._todo.popleft()
                self._running += 1
            try:
                call()
            except BaseException as error:
                with self._changed:
                    self._failure = self._failure or error
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._todo.clear()
            self._changed.wait_for(lambda: not self._running, PATIENCE)


def each(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    expected: type[Failure],
    workers: int = WORKERS,
    stopping: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> list[Result | Failure]:
    """`every`, where an `expected` exception is a result."""

    def call(item: Item) -> Result | Failure:
        try:
            return function(item)
        except expected as error:
            return error

    return every(call, items, workers, stopping)


def every(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    workers: int = WORKERS,
    stopping: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> list[Result]:
    """The results of `function` for every item, in order. The first exception propagates, also that of a signal.

    After an exception no call begins. stopping: entered then, for PATIENCE seconds at most; it makes running calls end.
    """
    results: dict[int, Result] = {}

    def call(place: int, item: Item) -> None:
        results[place] = function(item)

    with contextlib.ExitStack() as ends, Pool(workers) as pool:
        try:
            for place, item in enumerate(items):
                pool.submit(partial(call, place, item))
            pool.wait()
        except BaseException:
            ends.enter_context(stopping())
            raise
    return [results[place] for place in range(len(items))]


def ahead(items: Iterable[Item], most: int = 4) -> Generator[Item, None, None]:
    """The items in order, made by a thread that is ahead by `most` of them. What making one raises is raised here.

    When no more items are taken, the thread ends with the item that it makes; the generator's end waits for it.
    """
    made: Queue[Item | _Ended] = Queue(most)
    stopped = Event()

    def put(item: Item | _Ended) -> bool:
        while not stopped.is_set():
            with contextlib.suppress(Full):
                made.put(item, timeout=0.1)
                return True
        return False

    def make() -> None:
        error = None
        try:
            if not all(map(put, items)):
                return
        except BaseException as caught:
            error = caught
        put(_Ended(error))

    thread = Thread(target=make, daemon=True)
    thread.start()
    try:
        while not isinstance(item := made.get(), _Ended):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stopped.set()
        thread.join()


@dataclass
class _Ended:
    """The end of items: an error, or None."""

    error: BaseException | None
