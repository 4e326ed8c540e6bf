"""WrittenStream: the output of a function that writes to a file object, as a stream of chunks through a pipe."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import IO


class WrittenStream:
    """The bytes that a function writes to a file object, as chunks. The function runs in a thread of its own."""

    def __init__(self, write: Callable[[IO[bytes]], object]) -> None:
        self._write = write
        self._error: BaseException | None = None
        read, written = os.pipe()
        self._read = os.fdopen(read, "rb", buffering=0)
        self._thread = threading.Thread(target=self._run, args=(os.fdopen(written, "wb"),), daemon=True)
        self._thread.start()

    def chunks(self, size: int) -> Iterator[bytes]:
        """All bytes, in chunks of at most `size`. Raises the exception of the function, which aborts a request."""
        while chunk := self._read.read(size):
            yield chunk
        self._thread.join()
        self.check()

    def check(self) -> None:
        """Raises the exception of the function, if there was one."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Stop the function: its next write fails."""
        self._read.close()
        self._thread.join()

    def _run(self, file: IO[bytes]) -> None:
        try:
            with file:
                self._write(file)
        except BrokenPipeError:
            # The reader has closed the pipe: the answer of the daemon holds the reason.
            pass
        except BaseException as error:
            self._error = error
