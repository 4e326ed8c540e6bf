"""The searchable content of a file, in pieces: text of any length, UTF-16 as ASCII, compressed files and zips unpacked,
also inside each other."""

from __future__ import annotations

import bz2
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

PIECE = 2 << 20
_OVERLAP = 4096
"""bytes of a piece that the next one repeats: a secret lies in one of them."""
_MOST_UNPACKED = 64 << 20
_MOST_NESTED, _MOST_MEMBERS = 3, 10_000
_HEAD = 128
_STEP = 1 << 14
_ZIP = b"PK\x03\x04"
_XZ_MEMORY = 128 << 20

_COMPRESSED: tuple[tuple[bytes, Callable[[], Any]], ...] = (
    (b"\x1f\x8b", lambda: zlib.decompressobj(wbits=31)),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ", lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY)),
)


def is_packed(head: bytes) -> bool:
    """Whether a file that begins so is compressed, or a zip."""
    return head.startswith((_ZIP, *(magic for magic, _ in _COMPRESSED)))


@dataclass
class Limit:
    """Bytes that compressed files may still unpack to, with those inside each other, and that they unpacked to."""

    left: int = 256 << 20
    used: int = 0


def pieces(
    head: bytes, read: Callable[[int], bytes], limit: Limit, *, binary: bool = False, depth: int = _MOST_NESTED
) -> Iterator[bytes]:
    """The content of a file in overlapping pieces of 2 MiB; nothing for a binary file, unless `binary`.

    head: the first bytes; read: gives the next bytes, at most as many as asked for. limit: what is unpacked counts.
    depth: how many files inside each other are unpacked.
    """
    unpacker = next((make for magic, make in _COMPRESSED if head.startswith(magic)), None) if depth else None
    skip = _utf16(head)
    if unpacker is not None:
        inside = _Joined(_unpacked(unpacker(), head, read, limit)).read
        yield from pieces(inside(_HEAD), inside, limit, binary=True, depth=depth - 1)
    elif depth and head.startswith(_ZIP):
        yield from _zipped(_Joined(_whole(head, read)).read(_MOST_UNPACKED), limit, depth)
    elif skip is not None:
        yield from (piece[skip::2] for piece in _overlapping(_whole(head, read)))
    elif binary or b"\0" not in head[:64]:
        yield from _overlapping(_whole(head, read))


def _utf16(head: bytes) -> int | None:
    """0 for little-endian UTF-16 of mostly ASCII, 1 for big-endian; None for anything else."""
    for order in (0, 1) if len(head) >= 8 else ():
        # The first two bytes may be the byte order mark.
        if not any(head[3 - order : 32 : 2]) and all(head[2 + order : 32 : 2]):
            return order
    return None


def _whole(head: bytes, read: Callable[[int], bytes]) -> Iterator[bytes]:
    while head:
        yield head
        # An even number of bytes, for UTF-16.
        head = read(PIECE - _OVERLAP)


def _zipped(data: bytes, limit: Limit, depth: int) -> Iterator[bytes]:
    """A zip as it is, for names and files that are not compressed, and what its members unpack to.

    The members are found by their own headers: the table at the end may be missing, or list others.
    """
    yield from _overlapping(iter([data]))
    place, left = 0, _MOST_UNPACKED
    for _ in range(_MOST_MEMBERS):
        place = data.find(_ZIP, place)
        if place < 0 or place + 30 > len(data) or left <= 0:
            return
        method, name, extra = struct.unpack_from("<8xH16xHH", data, place)
        place += 30 + name + extra
        if method == zipfile.ZIP_DEFLATED:
            file = io.BytesIO(data)
            file.seek(place)
            unpacker = zlib.decompressobj(wbits=-15)
            read = partial(_step, file)
            inside = _Joined(_unpacked(unpacker, b"", read, limit, left))
            yield from pieces(inside.read(_HEAD), inside.read, limit, binary=True, depth=depth - 1)
            left -= inside.total
            place = max(place, file.tell() - len(unpacker.unused_data))


class _Joined:
    """Reads from parts. total: how many bytes were in the parts."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts, self._rest, self.total = parts, b"", 0

    def read(self, size: int) -> bytes:
        """As many bytes as are asked for; fewer at the end only."""
        found, have = [self._rest], len(self._rest)
        while have < size and (part := next(self._parts, None)) is not None:
            found.append(part)
            have += len(part)
            self.total += len(part)
        whole = b"".join(found)
        self._rest = whole[size:]
        return whole[:size]


def _step(file: BinaryIO, _: int) -> bytes:
    return file.read(_STEP)


def _unpacked(
    unpacker: Any, head: bytes, read: Callable[[int], bytes], limit: Limit, most: int = _MOST_UNPACKED
) -> Iterator[bytes]:
    """What a file unpacks to, at most `most` bytes; until its damage, if it is damaged."""
    data, total = head, 0
    try:
        while total < most and limit.left > 0 and not unpacker.eof:
            if not data and getattr(unpacker, "needs_input", True) and not (data := read(PIECE - _OVERLAP)):
                return
            made = unpacker.decompress(data, PIECE - _OVERLAP)
            data = getattr(unpacker, "unconsumed_tail", b"")
            total += len(made)
            limit.left -= len(made)
            limit.used += len(made)
            yield made
    except (zlib.error, OSError, EOFError, lzma.LZMAError, ValueError):
        return


def _overlapping(parts: Iterator[bytes]) -> Iterator[bytes]:
    last = b""
    for part in parts:
        piece = last + part
        if len(piece) >= PIECE // 2:
            yield piece
            piece = piece[-_OVERLAP:]
        last = piece
    if last:
        yield last
