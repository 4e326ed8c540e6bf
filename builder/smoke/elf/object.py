"""What the dynamic loader and the GPU driver read in an ELF file.

A reader of its own, of the few tables that are looked at: a 3 GB image holds a thousand libraries, and pyelftools
takes milliseconds for each. The tests compare the two on real libraries.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

MACHINES = {3: "i386", 40: "arm", 62: "x86-64", 183: "aarch64", 190: "cuda", 243: "riscv", 247: "bpf"}
AARCH64 = 183
CUDA = 190
"""A cubin is an ELF file too, for the GPU."""

Read = Callable[[int, int], bytes]
"""Gives the bytes from an offset on, at most a number of them: fewer where the file ends."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_TAG = struct.Struct("<qQ")
_NEED = struct.Struct("<HHIII")
_NEED_NAME = struct.Struct("<IHHII")
_DEFINE = struct.Struct("<HHHHIII")

_NOBITS, _DYNAMIC, _VERDEF, _VERNEED = 8, 6, 0x6FFFFFFD, 0x6FFFFFFE
_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 14, 15, 29
_MOST = 64 << 20
"""bytes; no table that is read is larger."""


@dataclass(frozen=True)
class Dynamic:
    """The dynamic section of an object.

    versions: symbol versions it needs, by library ("libc.so.6" → {"GLIBC_2.34", ...}).
    provides: symbol versions it defines.
    """

    machine: str
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    versions: dict[str, frozenset[str]]
    provides: frozenset[str]


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
    """The e_machine of a file that begins with `head` (20 bytes are enough), or None when it is no ELF file."""
    if len(head) < 20 or head[:4] != b"\x7fELF":
        return None
    return int.from_bytes(head[18:20], "big" if head[5] == 2 else "little")


def machine_name(machine: int) -> str:
    """A readable name of an e_machine value."""
    return MACHINES.get(machine, f"machine {machine}")


def reader(file: BinaryIO) -> Read:
    """Reads a seekable file."""

    def read(offset: int, size: int) -> bytes:
        file.seek(offset)
        return file.read(size)

    return read


def sections(read: Read) -> list[Section]:
    """The sections of a 64-bit little-endian ELF file, those without bytes in the file (.bss) with size 0.

    Raises ValueError when the file is damaged; every section is looked for at its place, so a file that was cut short
    is, too.
    """
    head = read(0, _HEADER.size)
    if len(head) < _HEADER.size or head[:4] != b"\x7fELF":
        raise ValueError("damaged ELF file: its header is cut short, or not there")
    if head[4:6] != b"\x02\x01":
        raise ValueError("damaged ELF file: not 64-bit little-endian")
    fields = _HEADER.unpack(head)
    start, entry, count, names = fields[6], fields[11], fields[12], fields[13]
    if not start or not count:
        return []
    if entry != _SECTION.size:
        raise ValueError(f"damaged ELF file: section headers of {entry} bytes")
    rows = list(_SECTION.iter_unpack(_exactly(read, start, entry * count)))
    if names >= count:
        raise ValueError("damaged ELF file: no names of sections")
    texts = _exactly(read, rows[names][4], rows[names][5])
    found = [
        Section(_text(texts, row[0]), row[1], row[4], 0 if row[1] == _NOBITS else row[5], row[6], row[7])
        for row in rows
    ]
    last = max((section.offset + section.size for section in found if section.size), default=0)
    if last:
        _exactly(read, last - 1, 1)
    return found


def read_dynamic(read: Read, found: list[Section] | None = None) -> Dynamic:
    """The dynamic section of an ELF file. found: its sections, when they are known. Raises ValueError."""
    rows = sections(read) if found is None else found
    words: dict[int, list[str]] = {}
    versions: dict[str, frozenset[str]] = {}
    provides: set[str] = set()
    for row in rows:
        if row.kind not in (_DYNAMIC, _VERNEED, _VERDEF) or not row.size:
            continue
        if row.link >= len(rows):
            raise ValueError(f"damaged ELF file: {row.name} has no names")
        data = _exactly(read, row.offset, row.size)
        texts = _exactly(read, rows[row.link].offset, rows[row.link].size)
        try:
            if row.kind == _DYNAMIC:
                for tag, value in _tags(data):
                    words.setdefault(tag, []).append(_text(texts, value))
            elif row.kind == _VERNEED:
                for library, names in _needs(data, texts, row.info):
                    versions[library] = versions.get(library, frozenset()) | names
            else:
                provides.update(_defines(data, texts, row.info))
        except struct.error as error:
            raise ValueError(f"damaged ELF file: {row.name}: {error}") from error
    machine = machine_of(read(0, 20)) or 0
    runpath = _split(words.get(_DT_RUNPATH, []))
    # ld.so ignores DT_RPATH where DT_RUNPATH is present.
    rpath = () if runpath else _split(words.get(_DT_RPATH, []))
    soname = words.get(_DT_SONAME, [""])[0]
    needed = tuple(words.get(_DT_NEEDED, []))
    return Dynamic(machine_name(machine), soname, needed, rpath, runpath, versions, frozenset(provides))


def _tags(data: bytes) -> Iterator[tuple[int, int]]:
    for tag, value in _TAG.iter_unpack(data[: len(data) - len(data) % _TAG.size]):
        if tag == 0:
            return
        if tag in (_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH):
            yield tag, value


def _needs(data: bytes, texts: bytes, count: int) -> Iterator[tuple[str, frozenset[str]]]:
    place = 0
    for _ in range(count):
        _, names, file, first, following = _NEED.unpack_from(data, place)
        found = set()
        at = place + first
        for _ in range(names):
            _, _, _, name, step = _NEED_NAME.unpack_from(data, at)
            found.add(_text(texts, name))
            at += step
        yield _text(texts, file), frozenset(found)
        if not following:
            return
        place += following


def _defines(data: bytes, texts: bytes, count: int) -> Iterator[str]:
    place = 0
    for _ in range(count):
        *_, first, following = _DEFINE.unpack_from(data, place)
        # The first name is the version itself, the others are its ancestors.
        (name,) = struct.unpack_from("<I", data, place + first)
        yield _text(texts, name)
        if not following:
            return
        place += following


def _exactly(read: Read, offset: int, size: int) -> bytes:
    if size > _MOST:
        raise ValueError(f"damaged ELF file: a table of {size} bytes")
    data = read(offset, size)
    if len(data) != size:
        raise ValueError("damaged ELF file: it ends before its last section")
    return data


def _text(data: bytes, start: int) -> str:
    end = data.find(b"\0", start)
    if start >= len(data) or end < 0:
        raise ValueError("damaged ELF file: a name is outside of its table")
    return data[start:end].decode("utf-8", "surrogateescape")


def _split(paths: list[str]) -> tuple[str, ...]:
    return tuple(part for path in paths for part in path.split(":") if part)
