"""Runs work with limits of processor time and memory."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable
from pathlib import Path

SECONDS = 20
"""Of processor time, so that other work on the machine does not count; without the bounds these take hours."""


def ends(work: Callable[[], object], memory: int | None = None) -> None:
    """Run `work`, which fails after so many seconds. memory: bytes that it may use besides those in use now.

    In this process: a fork of a process with threads may wait for ever.
    """

    def late(*_: object) -> None:
        raise AssertionError(f"more than {SECONDS} s of processor time")

    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, late)
    if memory is not None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, limits[1]))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        work()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)
