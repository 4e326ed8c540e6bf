"""What a client of the server sends: requests within bounds, passwords and ranges."""

from __future__ import annotations

import base64
import io
import re
import socket
import time
from typing import Any

_REQUEST = 20.0
"""Seconds that a client may take to send a request, from its connection or its last answer on."""
_LONGEST = 32 << 10
"""Bytes of a request; that of docker has less than one thousand."""
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


class Requests(io.RawIOBase):
    """The stream of requests of a connection. Each has a limit of time and length, so that nobody can keep a
    connection, or make the server keep headers, without end. timeout: of the socket, in seconds, for answers."""

    def __init__(self, connection: socket.socket, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout
        self.begin()

    def begin(self) -> None:
        """The next request begins."""
        self._left, self._end = _LONGEST, time.monotonic() + _REQUEST

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Receive bytes of the request. Raises TimeoutError when it takes too long or is too long."""
        seconds = self._end - time.monotonic()
        if seconds <= 0 or self._left <= 0:
            raise TimeoutError
        self._connection.settimeout(seconds)
        try:
            count = self._connection.recv_into(memoryview(buffer)[: self._left])
        finally:
            self._connection.settimeout(self._timeout)
        self._left -= count
        return count


def password(encoded: str) -> bytes:
    """The password in the credentials of HTTP Basic."""
    try:
        return base64.b64decode(encoded, validate=True).partition(b":")[2]
    except ValueError:
        return b""


def byte_range(header: str, size: int) -> tuple[int, int] | None:
    """The first byte and the one after the last that a Range header asks for (RFC 9110); None: there are none such.

    Several ranges, and what is no range of bytes, count as no header.
    """
    found = _RANGE.fullmatch(header.strip())
    if found is None or not (found[1] or found[2]):
        return 0, size
    if not found[1]:
        count = int(found[2])
        return (max(0, size - count), size) if count and size else None
    start, end = int(found[1]), min(int(found[2]) + 1 if found[2] else size, size)
    if found[2] and int(found[2]) < start:
        return 0, size
    return (start, end) if start < size else None
