"""Calls one function for many items in parallel threads."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from threading import Thread
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Failure = TypeVar("Failure", bound=Exception)

WORKERS = 24
"""Threads. More than processors, because the calls wait for the network."""


def each(
    function: Callable[[Item], Result], items: Sequence[Item], expected: type[Failure], workers: int = WORKERS
) -> list[Result | Failure]:
    """`every`, where an `expected` exception is a result."""

    def call(item: Item) -> Result | Failure:
        try:
            return function(item)
        except expected as error:
            return error

    return every(call, items, workers)


def every(function: Callable[[Item], Result], items: Sequence[Item], workers: int = WORKERS) -> list[Result]:
    """The results of `function` for every item, in order. The first exception propagates.

    Neither that nor Ctrl-C waits for running calls: the threads are daemons.
    """
    todo: queue.SimpleQueue[tuple[int, Item]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Callable[[], Result]]] = queue.SimpleQueue()
    for pair in enumerate(items):
        todo.put(pair)

    def work() -> None:
        while True:
            try:
                place, item = todo.get_nowait()
            except queue.Empty:
                return
            done.put((place, _outcome(function, item)))

    for _ in range(min(workers, len(items))):
        Thread(target=work, daemon=True).start()
    results: dict[int, Result] = {}
    while len(results) < len(items):
        place, outcome = done.get()
        results[place] = outcome()
    return [results[place] for place in range(len(items))]


def _outcome(function: Callable[[Item], Result], item: Item) -> Callable[[], Result]:
    """Call the function now; the returned callable repeats its result or exception in the calling thread."""
    try:
        result = function(item)
    except BaseException as error:
        raised = error

        def again() -> Result:
            raise raised

        return again
    return lambda: result
