"""The GPU code in an ELF file: an inventory of its `.nv_fatbin` section, and what a GB10 runs of it.

The section is a sequence of containers, each a header (magic, version, header size, payload length) and entries
(kind, header size, payload size, architecture, flags). Only headers are read: payloads are skipped.
Checked against `cuobjdump --list-elf --list-ptx`: the counts are the same; cuobjdump shows family targets (sm_120f)
without their suffix.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping

from builder.smoke.elf.object import Read, Section, sections

MAGIC = 0xBA55ED50
_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQ8xHHI8xQ")
"""kind, version, header size, payload size; at 24 minor and major version of the code (of PTX: its ISA; seen in what
nvcc 13.0 writes for `.version 9.0`), at 28 the architecture, at 40 the flags."""

_ARCH_SPECIFIC = 0x100000
_FAMILY_SPECIFIC = 0x200000
_MOST_PADDING = 4 << 20
_MOST_TARGETS = 1000
_MOST_HEADERS = 500_000
_PREFIX = {1: "compute", 2: "sm"}


def inventory(read: Read, found: list[Section] | None = None) -> Counter[str]:
    """The number of code objects per target: {"sm_121": 12, "compute_120": 11, "sm_90a": 4}.

    found: the sections, when they are known. Raises ValueError when the file or a container in it is damaged.
    """
    return inspect(read, found)[0]


def inspect(read: Read, found: list[Section] | None = None) -> tuple[Counter[str], tuple[int, int]]:
    """The inventory, and the newest version of the PTX in it; (0, 0) without PTX. Raises as `inventory` does."""
    rows = sections(read) if found is None else found
    counts: Counter[str] = Counter()
    newest = (0, 0)
    parts = sorted((row.offset, row.offset + row.size) for row in rows if row.name == ".nv_fatbin" and row.size)
    for number, (start, end) in enumerate(parts):
        if number and start < parts[number - 1][1]:
            raise ValueError("damaged fatbin: two sections overlap")
        for target, version in _targets(read, start, end):
            counts[target] += 1
            if len(counts) > _MOST_TARGETS:
                raise ValueError(f"damaged fatbin: more than {_MOST_TARGETS} targets")
            if target.startswith(_PREFIX[1]):
                newest = max(newest, version)
    return counts, newest


def runs_on_gb10(code: Mapping[str, int]) -> str:
    """How a GB10 (compute capability 12.1) runs code of these targets: "sm_121", "sm_120", "PTX", or "" (it does not).

    A cubin runs on devices of its own major version whose minor is not lower (sm_120 on 12.1), one of a family (f) on
    the whole family, one with `a` on its own device only; PTX of up to 12.1 is compiled by the driver, but for `a`
    (CUDA C++ Programming Guide, compute capability and feature sets).
    """
    if any(name.rstrip("af") == "sm_121" for name in code):
        return "sm_121"
    if any(name in ("sm_120", "sm_120f") for name in code):
        return "sm_120"
    numbers = [re.fullmatch(r"compute_(\d+)", name) for name in code]
    if any(match and int(match[1]) <= 121 for match in numbers) or "compute_120f" in code or "compute_121a" in code:
        return "PTX"
    return ""


def by_number(item: tuple[str, int]) -> tuple[str, int, str]:
    """A sort key for targets: compute_* (PTX) before sm_* (cubins), then by number."""
    prefix, _, arch = item[0].partition("_")
    return (prefix, int(re.sub(r"\D", "", arch) or 0), arch)


def describe(code: Mapping[str, int]) -> str:
    """An inventory as text."""
    return ", ".join(f"{name} ({count})" for name, count in sorted(code.items(), key=by_number)) or "no GPU code"


def _targets(read: Read, position: int, end: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each code object's target, and its version, major first."""
    padding, left = 0, _MOST_HEADERS
    while position + _CONTAINER.size <= end:
        magic, _, header, length = _CONTAINER.unpack(_exactly(read, position, _CONTAINER.size))
        if magic != MAGIC:
            # Containers are aligned; the linker pads between them.
            position += 8
            padding += 8
            if padding > _MOST_PADDING:
                raise ValueError("damaged fatbin: no container in many bytes")
            continue
        if (left := left - 1) < 0:
            raise ValueError(f"damaged fatbin: more than {_MOST_HEADERS} headers")
        entry = position + header
        position = entry + length
        if header < _CONTAINER.size or position > end:
            raise ValueError("damaged fatbin: a container is longer than its section")
        while entry + _ENTRY.size <= position:
            kind, _, size, payload, minor, major, arch, flags = _ENTRY.unpack(_exactly(read, entry, _ENTRY.size))
            if size < _ENTRY.size or entry + size + payload > position:
                raise ValueError("damaged fatbin: an entry is longer than its container")
            if (left := left - 1) < 0:
                raise ValueError(f"damaged fatbin: more than {_MOST_HEADERS} headers")
            suffix = "a" if flags & _ARCH_SPECIFIC else "f" if flags & _FAMILY_SPECIFIC else ""
            if kind in _PREFIX:
                yield f"{_PREFIX[kind]}_{arch}{suffix}", (major, minor)
            entry += size + payload


def _exactly(read: Read, position: int, size: int) -> bytes:
    data = read(position, size)
    if len(data) != size:
        raise ValueError("damaged fatbin: the file ends inside it")
    return data
