"""Bytes, rate and time left of a transfer, on standard error."""

from __future__ import annotations

from threading import Lock
from types import TracebackType
from typing import Any

from builder.cli.output import say, size
from builder.cli.progress import PLAIN_EVERY, start_live
from builder.digest import Digest
from builder.events import now


class Sending:
    """Shows how far a transfer is while its `with` block runs, and at its end what it took. Thread-safe.

    On a terminal it is a line below other messages, elsewhere a line every ten seconds.
    """

    def __init__(self) -> None:
        self._begin = self._printed = now()
        self._total = 0
        self._moved: dict[Digest, int] = {}
        self._lock = Lock()
        self._live: Any = None

    def expect(self, total: int) -> None:
        """How many bytes are to be moved."""
        self._total = total

    def moved(self, digest: Digest, count: int) -> None:
        """How many bytes of a blob have been moved."""
        with self._lock:
            self._moved[digest] = count
            due = self._live is None and now() - self._printed >= PLAIN_EVERY
            if due:
                self._printed = now()
        if due:
            say(f"  {self.text()}")

    def text(self) -> str:
        """For a person: bytes, rate and time left."""
        if not self._total:
            return "looking up what the registry has"
        done, seconds = sum(self._moved.copy().values()), now() - self._begin
        rate = done / seconds if seconds else 0.0
        left = f", about {(self._total - done) / rate:.0f} s more" if rate and done < self._total else ""
        return f"{size(done)} of {size(self._total)}, {size(round(rate))}/s{left}"

    def __enter__(self) -> Sending:
        self._live = start_live(lambda console: self.text(), per_second=2)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        if self._total and error is None:
            say(f"  sent {self.text()}, in {now() - self._begin:.1f} s")
