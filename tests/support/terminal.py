"""A terminal of a given width: what a command prints there, line by line."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import termios
import threading
from collections.abc import Callable, Iterator
from typing import IO

_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ROWS = 40


@contextlib.contextmanager
def terminal(columns: int) -> Iterator[tuple[IO[bytes], Callable[[], str]]]:
    """A terminal as a file to write to, and a function that closes it and gives all that was written."""
    reading, writing = pty.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    parts: list[bytes] = []

    def follow() -> None:
        # The other side is closed: EIO.
        with contextlib.suppress(OSError):
            while data := os.read(reading, 1 << 16):
                parts.append(data)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    file = os.fdopen(writing, "wb", buffering=0)

    def text() -> str:
        file.close()
        thread.join(20)
        return b"".join(parts).decode()

    try:
        yield file, text
    finally:
        file.close()
        thread.join(20)
        os.close(reading)


def lines_of(text: str) -> list[str]:
    """The lines as they are at the end, without colors and movements of the cursor."""
    return [_CONTROLS.sub("", line.rstrip("\r").rpartition("\r")[2]) for line in text.removesuffix("\n").split("\n")]
