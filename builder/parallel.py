"""Runs one function over many items at once."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from threading import Thread
from typing import TypeVar

from builder.errors import BuilderError

Item = TypeVar("Item")
Result = TypeVar("Result")

WORKERS = 24
"""What waits for the network needs no processor."""


def each(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int = WORKERS
) -> list[Result | BuilderError]:
    """What `function` gives for every item, in order; its BuilderErrors are results. Others are raised at once.

    Ctrl-C does not wait for what is under way: the threads are daemons.
    """
    todo: queue.SimpleQueue[tuple[int, Item]] = queue.SimpleQueue()
    said: queue.SimpleQueue[tuple[int, Callable[[], Result | BuilderError]]] = queue.SimpleQueue()
    for pair in enumerate(items):
        todo.put(pair)

    def work() -> None:
        while True:
            try:
                place, item = todo.get_nowait()
            except queue.Empty:
                return
            said.put((place, _outcome(function, item)))

    for _ in range(min(workers, len(items))):
        Thread(target=work, daemon=True).start()
    results: dict[int, Result | BuilderError] = {}
    while len(results) < len(items):
        place, outcome = said.get()
        results[place] = outcome()
    return [results[place] for place in range(len(items))]


def _outcome(function: Callable[[Item], Result], item: Item) -> Callable[[], Result | BuilderError]:
    """Gives in the calling thread what happened in this one."""
    try:
        result: Result | BuilderError = function(item)
    except BuilderError as error:
        result = error
    except BaseException as error:
        raised = error

        def again() -> Result | BuilderError:
            raise raised

        return again
    return lambda: result
