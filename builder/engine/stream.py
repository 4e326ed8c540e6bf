"""A function that writes into a file, read as a stream of chunks: nothing is kept in memory or on disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import IO


class WrittenStream:
    """What a function writes into a file, as chunks; the function runs in a thread of its own."""

    def __init__(self, write: Callable[[IO[bytes]], object]) -> None:
        self._write = write
        self._error: BaseException | None = None
        read, written = os.pipe()
        self._read = os.fdopen(read, "rb", buffering=0)
        self._thread = threading.Thread(target=self._run, args=(os.fdopen(written, "wb"),), daemon=True)
        self._thread.start()

    def chunks(self, size: int) -> Iterator[bytes]:
        """All of it, at most `size` bytes at a time. Raises what the function raised, which breaks off a request."""
        while chunk := self._read.read(size):
            yield chunk
        self._thread.join()
        self.check()

    def check(self) -> None:
        """Raises what the function raised."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the function: its next write fails."""
        self._read.close()
        self._thread.join()

    def _run(self, file: IO[bytes]) -> None:
        try:
            with file:
                self._write(file)
        except BrokenPipeError:
            # The daemon took no more of it; its answer says why.
            pass
        except BaseException as error:
            self._error = error
