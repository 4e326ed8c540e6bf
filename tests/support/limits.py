"""Runs work with a limit of processor time."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable

SECONDS = 20
"""Of processor time, so that other work on the machine does not count; without the bounds these take hours."""


def ends(work: Callable[[], object]) -> None:
    """Run `work` in a process of its own, which is killed after so many seconds."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        work()

    process = multiprocessing.get_context("fork").Process(target=limited)
    process.start()
    process.join()
    assert process.exitcode == 0
