"""Whether an ELF file's segments, by which glibc's loader finds its tables, name the tables that its sections name.

The other modules read sections. A file whose segments lead elsewhere would load other libraries than a check sees.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise

from builder.smoke.elf.object import Read, Section, exactly

_PROGRAM = struct.Struct("<IIQQQQQQ")
"""Type, flags, offset, address, physical address, bytes in the file, bytes in memory, alignment."""
TAG = struct.Struct("<qQ")
"""An entry of the dynamic section: tag and value."""
_LOAD, _SEGMENT, _INTERP = 1, 2, 3
_PAGE = 4096
DYNAMIC, VERDEF, VERNEED = 6, 0x6FFFFFFD, 0x6FFFFFFE
"""Kinds of sections."""
_STRTAB, _DT_VERDEF, _DT_VERNEED = 5, 0x6FFFFFFC, 0x6FFFFFFE
"""Tags of addresses: of the names, and of the tables of versions."""

_Loads = Sequence[tuple[int, int, int]]


def check_segments(read: Read, rows: Sequence[Section], tables: Mapping[int, Section]) -> None:
    """Raises ValueError when the loader finds other tables. rows: all sections. tables: those of the loader, by kind.

    A file without segments is no program and no library that can be loaded.
    """
    programs = _programs(read)
    dynamic = [program for program in programs if program[0] == _SEGMENT and program[5]]
    if not dynamic:
        return
    table = tables.get(DYNAMIC)
    loads = _loads(programs)
    if len(dynamic) > 1 or table is None or _offset(loads, dynamic[0][3]) != table.offset:
        raise _other("dynamic section")
    found: dict[int, int] = {}
    for tag, value in TAG.iter_unpack(exactly(read, table.offset, table.size - table.size % TAG.size)):
        if tag == 0:
            break
        if tag in (_STRTAB, _DT_VERDEF, _DT_VERNEED):
            found[tag] = value
    else:
        raise ValueError("damaged ELF file: its dynamic section has no end")
    for tag, section in (
        (_STRTAB, rows[table.link]),
        (_DT_VERDEF, tables.get(VERDEF)),
        (_DT_VERNEED, tables.get(VERNEED)),
    ):
        if tag in found and (section is None or _offset(loads, found[tag]) != section.offset):
            raise _other("table of names" if tag == _STRTAB else "table of versions")


def loader_of(read: Read) -> str:
    """The path of the loader that the kernel starts for a program; "" for a library. Raises ValueError."""
    # The kernel takes the first.
    place = next((program for program in _programs(read) if program[0] == _INTERP), None)
    name = exactly(read, place[2], min(place[5], _PAGE)) if place is not None else b""
    return name.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _programs(read: Read) -> list[tuple[int, ...]]:
    place, size, count = struct.unpack("<Q14xHH", read(32, 8) + read(40, 18))
    if not place or not count:
        return []
    if size != _PROGRAM.size:
        raise ValueError(f"damaged ELF file: program headers of {size} bytes")
    return list(_PROGRAM.iter_unpack(exactly(read, place, size * count)))


def _loads(programs: Sequence[tuple[int, ...]]) -> _Loads:
    """Address, offset and size of what is mapped. Raises ValueError when one covers the pages of another."""
    loads = [(program[3], program[2], program[5]) for program in programs if program[0] == _LOAD and program[5]]
    for (address, offset, size), (following, place, _) in pairwise(loads):
        if following < address + size or (
            following // _PAGE <= (address + size - 1) // _PAGE and following - place != address - offset
        ):
            raise ValueError("damaged ELF file: its segments overlap")
    return loads


def _offset(loads: _Loads, address: int) -> int | None:
    """The place in the file of what is mapped at an address."""
    return next((place + address - start for start, place, size in loads if start <= address < start + size), None)


def _other(what: str) -> ValueError:
    return ValueError(f"damaged ELF file: the loader reads another {what} than its sections name")
