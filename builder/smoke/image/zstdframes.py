"""The frames of a zstd stream (RFC 8878): whether the last one is whole, which the decompressor does not tell."""

from __future__ import annotations

from typing import BinaryIO

_FRAME, _SKIPPABLE = 0xFD2FB528, 0x184D2A50
_DICTIONARY, _CONTENT = (0, 1, 2, 4), (0, 2, 4, 8)
"""Bytes of two fields of a frame's header, by two bits of its first byte."""
_MOST_BLOCKS = 2_000_000
"""Blocks have up to 128 KiB; there may be empty ones."""


class Frames:
    """A file of zstd frames. `read` raises EOFError where the file ends within a frame, which
    container engines refuse."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._head = b""
        self._want = 4
        self._skip = 0
        self._next = self._magic
        self._blocks = _MOST_BLOCKS

    def read(self, size: int = -1, /) -> bytes:
        """At most so many bytes of the file."""
        data = self._file.read(size)
        place = 0
        while place < len(data):
            if self._skip:
                step = min(self._skip, len(data) - place)
                self._skip -= step
            else:
                step = min(self._want - len(self._head), len(data) - place)
                self._head += data[place : place + step]
                if len(self._head) == self._want:
                    head, self._head = self._head, b""
                    self._next(head)
            place += step
        if size and not data and (self._skip or self._head or self._next != self._magic):
            raise EOFError("the zstd stream is cut")
        return data

    def _then(self, skip: int, want: int, following: object) -> None:
        """Skip bytes; then a part of so many bytes comes."""
        self._skip, self._want, self._next = skip, want, following  # type: ignore[assignment]

    def _magic(self, head: bytes) -> None:
        number = int.from_bytes(head, "little")
        if number == _FRAME:
            self._then(0, 1, self._descriptor)
        elif number & ~0xF == _SKIPPABLE:
            self._then(0, 4, self._skippable)
        # Anything else is refused by the decompressor.

    def _skippable(self, head: bytes) -> None:
        self._then(int.from_bytes(head, "little"), 4, self._magic)

    def _descriptor(self, head: bytes) -> None:
        bits = head[0]
        single, self._checksum = bits >> 5 & 1, 4 * (bits >> 2 & 1)
        content = _CONTENT[bits >> 6] or single
        self._then(1 - single + _DICTIONARY[bits & 3] + content, 3, self._block)

    def _block(self, head: bytes) -> None:
        self._blocks -= 1
        if self._blocks < 0:
            raise EOFError(f"the zstd stream has more than {_MOST_BLOCKS} blocks")
        value = int.from_bytes(head, "little")
        size = 1 if value >> 1 & 3 == 1 else value >> 3
        if value & 1:
            self._then(size + self._checksum, 4, self._magic)
        else:
            self._then(size, 3, self._block)
