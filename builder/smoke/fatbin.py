"""Which GPU architectures an object has code for: an inventory of its `.nv_fatbin` section.

The section is a row of containers, each a header (magic, version, header size, length of what follows) and entries
(kind, header size, payload size, architecture, flags). Only headers are read: payloads are skipped.
Checked against `cuobjdump --list-elf --list-ptx`: the counts are the same; cuobjdump shows family targets (sm_120f)
without their suffix.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from typing import BinaryIO

MAGIC = 0xBA55ED50
_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQ12xI8xQ")
"""kind, version, header size, payload size; then at 28 the architecture, at 40 the flags."""

_ARCH_SPECIFIC = 0x100000
_FAMILY_SPECIFIC = 0x200000
_PREFIX = {1: "compute", 2: "sm"}


def inventory(file: BinaryIO) -> Counter[str]:
    """How many pieces of code an ELF file (seekable) has per target: {"sm_121": 12, "compute_120": 11, "sm_90a": 4}.

    Raises ValueError when the file or a container in it is damaged.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        section = ELFFile(file).get_section_by_name(".nv_fatbin")
    except ELFError as error:
        raise ValueError(f"damaged ELF file: {error}") from error
    if section is None or section["sh_type"] == "SHT_NOBITS":
        return Counter()
    start = int(section["sh_offset"])
    return Counter(_targets(file, start, start + int(section["sh_size"])))


def _targets(file: BinaryIO, position: int, end: int) -> Iterator[str]:
    while position + _CONTAINER.size <= end:
        file.seek(position)
        magic, _, header, length = _CONTAINER.unpack(_exactly(file, _CONTAINER.size))
        if magic != MAGIC:
            # Containers are aligned; the linker pads between them.
            position += 8
            continue
        entry = position + header
        position = entry + length
        if header < _CONTAINER.size or position > end:
            raise ValueError("damaged fatbin: a container is longer than its section")
        while entry + _ENTRY.size <= position:
            file.seek(entry)
            kind, _, size, payload, arch, flags = _ENTRY.unpack(_exactly(file, _ENTRY.size))
            if size < _ENTRY.size or entry + size + payload > position:
                raise ValueError("damaged fatbin: an entry is longer than its container")
            suffix = "a" if flags & _ARCH_SPECIFIC else "f" if flags & _FAMILY_SPECIFIC else ""
            if kind in _PREFIX:
                yield f"{_PREFIX[kind]}_{arch}{suffix}"
            entry += size + payload


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise ValueError("damaged fatbin: the file ends inside it")
    return data
