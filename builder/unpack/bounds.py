"""What the inputs of a layer may unpack to, and compressed streams that are read within those bounds."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from typing import IO, Any

from .entry import CHUNK, UnpackError

BYTES, RATIO = 256 << 20, 50
"""A layer unpacks to at most so many bytes, and so many more for each byte of its inputs (measured: 4.3 for a root)."""
FILES, NAMES = 250_000, 64 << 20
"""Files and folders of a layer, and the characters of their paths together."""
_MEMORY = 128 << 20
"""Bytes of scripts and other files that are read in one piece."""
_XZ_MEMORY = 128 << 20
"""Bytes for a decoder of xz; `xz -9`, the most that dpkg-deb uses, needs 65 MiB."""


class Budget:
    """What the inputs of a layer have left. packed: their size in bytes."""

    def __init__(self, packed: int) -> None:
        self._left = {"bytes": BYTES + RATIO * packed, "files": FILES, "bytes in memory": _MEMORY}
        self._left["characters of names"] = NAMES

    def take(self, owner: str, what: str, count: int) -> None:
        """Use `count` of what a budget has ("bytes", "files", …). Raises UnpackError when that is too much."""
        self._left[what] -= count
        if self._left[what] < 0:
            raise UnpackError(f"{owner} unpacks to too many {what} for its size", id="unpacks-too-large")


class Unpacked:
    """The content of a compressed file as a forward-only stream. compression: xz, gz, bz2, or tar for none.

    Raises UnpackError for another compression, and when the content is more than `budget` has.
    """

    def __init__(self, packed: io.RawIOBase, compression: str, owner: str, budget: Budget) -> None:
        file: Any = io.BufferedReader(packed, CHUNK)
        readers: dict[str, Callable[[], Any]] = {
            "xz": lambda: io.BufferedReader(_Xz(file), CHUNK),
            "gz": lambda: gzip.GzipFile(fileobj=file),
            "bz2": lambda: bz2.BZ2File(file),
            "tar": lambda: file,
        }
        if compression not in readers:
            raise UnpackError(f"{owner}: cannot read the compression {compression!r}", id="deb-compression-unknown")
        self._file = readers[compression]()
        self._owner = owner
        self._budget = budget
        self._place = 0

    def read(self, size: int) -> bytes:
        """The next `size` bytes; less at the end only."""
        data: bytes = self._file.read(size)
        self._place += len(data)
        self._budget.take(self._owner, "bytes", len(data))
        return data

    def seek(self, offset: int) -> int:
        """Read forwards to `offset`, or to the end."""
        while self._place < offset and self.read(min(CHUNK, offset - self._place)):
            pass
        return self._place

    def tell(self) -> int:
        """The number of bytes that were read."""
        return self._place


class _Xz(io.RawIOBase):
    """The content of a file with one xz stream, with a limit of memory, which `lzma.open` does not have."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed = packed
        self._decoder = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = b""
        while not data and not self._decoder.eof:
            chunk = self._packed.read(CHUNK) if self._decoder.needs_input else b""
            if not chunk and self._decoder.needs_input:
                raise EOFError("the xz stream ends too early")
            data = self._decoder.decompress(chunk, len(buffer))
        if self._decoder.eof and (self._decoder.unused_data or self._packed.read(1)):
            raise lzma.LZMAError("data after the end of the xz stream")
        buffer[: len(data)] = data
        return len(data)
