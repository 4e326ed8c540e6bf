"""The searchable content of a file, in pieces: text of any length, UTF-16 as ASCII, compressed files unpacked."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any

PIECE = 2 << 20
_OVERLAP = 4096
"""bytes of a piece that the next one repeats: a secret lies in one of them."""
_MOST_UNPACKED = 64 << 20
_XZ_MEMORY = 128 << 20

_COMPRESSED: tuple[tuple[bytes, Callable[[], Any]], ...] = (
    (b"\x1f\x8b", lambda: zlib.decompressobj(wbits=31)),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ", lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY)),
)


def pieces(head: bytes, read: Callable[[int], bytes], *, binary: bool = False) -> Iterator[bytes]:
    """The content of a file in overlapping pieces of 2 MiB; nothing for a binary file, unless `binary`.

    head: the first bytes; read: gives the next bytes, at most as many as asked for.
    """
    unpacker = next((make for magic, make in _COMPRESSED if head.startswith(magic)), None)
    skip = _utf16(head)
    if unpacker is not None:
        yield from _overlapping(_unpacked(unpacker(), head, read))
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


def _unpacked(unpacker: Any, head: bytes, read: Callable[[int], bytes]) -> Iterator[bytes]:
    """What a file unpacks to, at most 64 MiB; until its damage, if it is damaged."""
    data, total = head, 0
    try:
        while total < _MOST_UNPACKED and not unpacker.eof:
            if not data and getattr(unpacker, "needs_input", True) and not (data := read(PIECE - _OVERLAP)):
                return
            made = unpacker.decompress(data, PIECE - _OVERLAP)
            data = getattr(unpacker, "unconsumed_tail", b"")
            total += len(made)
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
