"""Reads several layers at once in threads, which an error or Ctrl-C stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from builder.parallel import every
from builder.smoke.image.layerstream import stopping

Item = TypeVar("Item")
Result = TypeVar("Result")
_PATIENCE = 1.0
"""Seconds in which a reader stops, unless it waits for a registry; its thread is a daemon."""


def read_each(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> list[Result]:
    """The results of `function`, which reads a layer, in order.

    Raises its first exception; then, and after Ctrl-C, no call begins, and reads of layers end.
    """
    running: list[Item] = []
    stopped = False

    def call(item: Item) -> Result:
        if stopped:
            raise InterruptedError("the reader of a layer was stopped")
        running.append(item)
        try:
            return function(item)
        finally:
            running.remove(item)

    try:
        return every(call, items, workers)
    except BaseException:
        stopped = True
        with stopping():
            end = time.monotonic() + _PATIENCE
            while running and time.monotonic() < end:
                time.sleep(0.01)
        raise
