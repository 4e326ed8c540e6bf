"""ELF files: the machine, the sections, and reading tables safely.

This reader replaces pyelftools, which takes milliseconds for each of the thousand libraries of an image. The tests
compare the two on real libraries.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

MACHINES = {3: "i386", 40: "arm", 62: "x86-64", 183: "aarch64", 190: "cuda", 243: "riscv", 247: "bpf"}
AARCH64 = 183
CUDA = 190
"""A cubin is an ELF file too, for the GPU."""

Read = Callable[[int, int], bytes]
"""Reads at an offset at most a number of bytes; fewer at the end of the file."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")

_NOBITS = 8
_LONGEST = 4096
_MOST = 64 << 20
"""bytes; the largest table that is read."""
_MOST_NAMES = 8 << 20
"""Characters of the names of all sections, which may be parts of each other."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section that has bytes in the file. kind: sh_type; link: the number of its string table; info: a count."""

    name: str
    kind: int
    offset: int
    size: int
    link: int
    info: int


def machine_of(head: bytes) -> int | None:
    """The e_machine of a file that begins with `head` (20 bytes are enough); None: not an ELF file."""
    if len(head) < 20 or head[:4] != b"\x7fELF":
        return None
    return int.from_bytes(head[18:20], "big" if head[5] == 2 else "little")


def machine_name(machine: int) -> str:
    """A readable name of an e_machine value."""
    return MACHINES.get(machine, f"machine {machine}")


def reader(file: BinaryIO) -> Read:
    """A Read of a seekable file."""

    def read(offset: int, size: int) -> bytes:
        file.seek(offset)
        return file.read(size)

    return read


def sections(read: Read) -> list[Section]:
    """The sections of a 64-bit little-endian ELF file; those without bytes in the file (.bss) have size 0.

    Raises ValueError when the file is damaged or truncated: the last byte of the last section must exist.
    """
    head = read(0, _HEADER.size)
    if len(head) < _HEADER.size or head[:4] != b"\x7fELF":
        raise ValueError("damaged ELF file: its header is truncated or missing")
    if head[4:6] != b"\x02\x01":
        raise ValueError("damaged ELF file: not 64-bit little-endian")
    fields = _HEADER.unpack(head)
    start, entry, count, names = fields[6], fields[11], fields[12], fields[13]
    if not start or not count:
        return []
    if entry != _SECTION.size:
        raise ValueError(f"damaged ELF file: section headers of {entry} bytes")
    rows = list(_SECTION.iter_unpack(exactly(read, start, entry * count)))
    if names >= count:
        raise ValueError("damaged ELF file: no names of sections")
    texts = exactly(read, rows[names][4], rows[names][5])
    found, left = [], _MOST_NAMES
    for row in rows:
        name = text_at(texts, row[0])
        if (left := left - len(name)) < 0:
            raise ValueError("damaged ELF file: the names of its sections are too long")
        found.append(Section(name, row[1], row[4], 0 if row[1] == _NOBITS else row[5], row[6], row[7]))
    last = max((section.offset + section.size for section in found if section.size), default=0)
    if last:
        exactly(read, last - 1, 1)
    return found


def exactly(read: Read, offset: int, size: int) -> bytes:
    """The bytes of a table. Raises ValueError when the file ends before its end, or the table is too large."""
    if size > _MOST:
        raise ValueError(f"damaged ELF file: a table of {size} bytes")
    data = read(offset, size)
    if len(data) != size:
        raise ValueError("damaged ELF file: it ends before its last section")
    return data


def text_at(data: bytes, start: int) -> str:
    """A name in a string table. Raises ValueError when it is outside of the table."""
    end = data.find(b"\0", start, start + _LONGEST)
    if start >= len(data) or end < 0:
        raise ValueError("damaged ELF file: a name is outside of its table")
    return data[start:end].decode("utf-8", "surrogateescape")
