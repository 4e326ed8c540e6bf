"""Answers of HTTP servers that Python's http.client would read without end, or take for whole when they are cut.

It bounds neither the interim answers (100 Continue) before an answer, nor the trailers after its last chunk, nor the
time of one line: each byte restarts the timeout of the socket. And the end of a connection ends the headers too: of
`Content-Length: 12345` it may read `Content-Length: 12`, and of a redirect half an address.
"""

from __future__ import annotations

import http.client
import time
from typing import Any

_SECONDS = 60.0
"""For the headers of an answer, all of its trailers, or the size of a chunk, from their first byte on."""


class _Lines:
    """A stream whose lines end in time. last: the last line that was read."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._end: float | None = None
        self.last = b""
        self.together = False
        """Whether all lines that follow have one time limit."""

    def begin(self, *, together: bool) -> None:
        """The time limit begins with the next byte."""
        self._end, self.together = None, together

    def readline(self, limit: int = -1) -> bytes:
        """The next line, of at most so many bytes. Raises TimeoutError."""
        if not self.together:
            self._end = None
        line = b""
        while not line.endswith(b"\n") and (limit < 0 or len(line) < limit):
            piece = self._stream.peek(1)
            if not piece:
                break
            if self._end is None:
                self._end = time.monotonic() + _SECONDS
            if time.monotonic() > self._end:
                raise TimeoutError("the headers of an answer have no end")
            size = piece.find(b"\n") + 1 or len(piece)
            line += self._stream.read(size if limit < 0 else min(size, limit - len(line)))
        self.last = line
        return line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class CheckedResponse(http.client.HTTPResponse):
    """An answer whose headers end with an empty line, and whose headers, trailers and sizes of chunks end in time."""

    def begin(self) -> None:
        """Read the status and headers. Raises IncompleteRead when the connection ends within them."""
        lines = _Lines(self.fp)
        lines.begin(together=True)
        self.fp = lines  # type: ignore[assignment]
        super().begin()
        lines.begin(together=False)
        if lines.last not in (b"\r\n", b"\n"):
            raise http.client.IncompleteRead(lines.last)

    def _read_and_discard_trailer(self) -> None:
        lines: Any = self.fp
        lines.begin(together=True)
        super()._read_and_discard_trailer()  # type: ignore[misc]
