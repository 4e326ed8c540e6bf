"""Retries of HTTP requests: attempts, pauses that double, and the Retry-After header."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime


@dataclass(frozen=True)
class RetryPolicy:
    """Attempts and limits in seconds. pause: before the second attempt, doubled each time. total: all pauses together.

    connect: for a connection. read: between two bytes. whole: for the headers of an answer and for a small body.
    """

    attempts: int = 4
    pause: float = 0.5
    total: float = 90.0
    connect: float = 10.0
    read: float = 60.0
    whole: float = 120.0
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)

    def budget(self) -> Budget:
        """The attempts and pauses of one request."""
        return Budget(self)


class Budget:
    """The attempts and pauses that one request has left."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._left = policy.attempts - 1
        self._seconds = policy.total
        self._pause = policy.pause

    def again(self, requested: float | None = None) -> bool:
        """Pause before the next attempt; False when none is left. requested: seconds of the server, the least pause."""
        pause = max(requested or 0.0, self._pause)
        if self._left <= 0 or pause > self._seconds:
            return False
        self._left -= 1
        self._seconds -= pause
        self._pause *= 2
        self._policy.sleep(pause)
        return True


def retry_after(value: str) -> float | None:
    """The seconds that a Retry-After header asks for, a number or a date; None when it is absent or malformed."""
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    return None
