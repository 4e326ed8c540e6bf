"""Retries of HTTP requests: attempts, pauses that double, and the Retry-After header."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime


@dataclass(frozen=True)
class Patience:
    """How long to wait, in seconds. total: all pauses of one request; pause: the first, doubled each time.

    read: between two bytes. whole: for an answer's headers and for a small body, however steadily the bytes arrive.
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
    """The attempts and pauses that are left to one request."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._left = patience.attempts - 1
        self._seconds = patience.total
        self._pause = patience.pause

    def again(self, asked: float | None = None) -> bool:
        """Pause before the next attempt, for at least the `asked` seconds of the server; False when none is left."""
        pause = max(asked or 0.0, self._pause)
        if self._left <= 0 or pause > self._seconds:
            return False
        self._left -= 1
        self._seconds -= pause
        self._pause *= 2
        self._patience.sleep(pause)
        return True


def retry_after(value: str) -> float | None:
    """The seconds that a Retry-After header asks for, a number or a date; None when it is absent or malformed."""
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    return None
