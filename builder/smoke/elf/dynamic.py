"""The dynamic section of an ELF file: needed libraries, search paths and symbol versions."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from builder.smoke.elf.object import Read, Section, exactly, machine_name, machine_of, sections, text_at
from builder.smoke.elf.segments import DYNAMIC, TAG, VERDEF, VERNEED, check_segments, loader_of

_NEED = struct.Struct("<HHIII")
_NEED_NAME = struct.Struct("<IHHII")
_DEFINE = struct.Struct("<HHHHIII")

_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 14, 15, 29
_DT_OTHERS = (0x7FFFFFFF, 0x7FFFFFFD, 0x6FFFFEFC, 0x6FFFFEFB)
"""DT_FILTER, DT_AUXILIARY, DT_AUDIT and DT_DEPAUDIT: libraries that the loader loads, too."""

_MOST_NAMES, _MOST_FOLDERS, _MOST_TEXT = 4096, 256, 1 << 16


@dataclass(frozen=True)
class Dynamic:
    """The dynamic section of an object.

    versions: the needed symbol versions by library ("libc.so.6" → {"GLIBC_2.34", ...}).
    provides: the defined symbol versions. loader: the path of the loader of a program.
    """

    machine: str
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    versions: dict[str, frozenset[str]]
    provides: frozenset[str]
    loader: str = ""


def read_dynamic(read: Read, found: list[Section] | None = None) -> Dynamic:
    """The dynamic section of an ELF file. found: the sections, when they are known. Raises ValueError."""
    rows = sections(read) if found is None else found
    words: dict[int, list[str]] = {}
    versions: dict[str, set[str]] = {}
    provides: set[str] = set()
    tables = [row for row in rows if row.kind in (DYNAMIC, VERNEED, VERDEF) and row.size]
    if len({row.kind for row in tables}) < len(tables):
        raise ValueError("damaged ELF file: two sections of one kind")
    if any(row.link >= len(rows) for row in tables):
        raise ValueError("damaged ELF file: a table has no names")
    check_segments(read, rows, {row.kind: row for row in tables})
    for row in tables:
        data = exactly(read, row.offset, row.size)
        texts = exactly(read, rows[row.link].offset, rows[row.link].size)
        try:
            if row.kind == DYNAMIC:
                for tag, value in _tags(data):
                    words.setdefault(tag, []).append(text_at(texts, value))
            elif row.kind == VERNEED:
                for library, names in _needs(data, texts, row.info):
                    versions.setdefault(library, set()).update(names)
            else:
                provides.update(_defines(data, texts, row.info))
        except struct.error as error:
            raise ValueError(f"damaged ELF file: {row.name}: {error}") from error
    machine = machine_of(read(0, 20)) or 0
    runpath = _split(words.get(_DT_RUNPATH, []))
    # ld.so ignores DT_RPATH where DT_RUNPATH is present, also an empty one.
    rpath = () if _DT_RUNPATH in words else _split(words.get(_DT_RPATH, []))
    soname = words.get(_DT_SONAME, [""])[0]
    needed = tuple(name for tag in (_DT_NEEDED, *_DT_OTHERS) for name in words.get(tag, ()))
    listed = [
        soname,
        *needed,
        *rpath,
        *runpath,
        *versions,
        *provides,
        *(name for each in versions.values() for name in each),
    ]
    if sum(map(len, listed)) > _MOST_TEXT or len(listed) > _MOST_NAMES:
        raise ValueError(f"damaged ELF file: more than {_MOST_NAMES} names, or {_MOST_TEXT} characters in them")
    needs = {library: frozenset(wanted) for library, wanted in versions.items()}
    return Dynamic(machine_name(machine), soname, needed, rpath, runpath, needs, frozenset(provides), loader_of(read))


def _tags(data: bytes) -> Iterator[tuple[int, int]]:
    count = 0
    for tag, value in TAG.iter_unpack(data[: len(data) - len(data) % TAG.size]):
        if tag == 0:
            return
        if tag in (_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH, *_DT_OTHERS):
            count += 1
            if count > _MOST_NAMES:
                raise ValueError(f"damaged ELF file: more than {_MOST_NAMES} needed libraries and folders")
            yield tag, value


def _needs(data: bytes, texts: bytes, count: int) -> Iterator[tuple[str, frozenset[str]]]:
    place = 0
    # Entries may overlap: without a bound, few bytes make a loop of years.
    left = len(data) // _NEED_NAME.size
    for _ in range(_few(count)):
        _, names, file, first, following = _NEED.unpack_from(data, place)
        found = set()
        at = place + first
        left -= names + 1
        if left < -1:
            raise ValueError("damaged ELF file: its needed versions overlap")
        for _ in range(_few(names)):
            _, _, _, name, step = _NEED_NAME.unpack_from(data, at)
            found.add(text_at(texts, name))
            at += step
        yield text_at(texts, file), frozenset(found)
        if not following:
            return
        place += following


def _defines(data: bytes, texts: bytes, count: int) -> Iterator[str]:
    place = 0
    for _ in range(min(_few(count), len(data) // _DEFINE.size)):
        *_, first, following = _DEFINE.unpack_from(data, place)
        # The first name is the version itself, the others are its ancestors.
        (name,) = struct.unpack_from("<I", data, place + first)
        yield text_at(texts, name)
        if not following:
            return
        place += following


def _few(count: int) -> int:
    if count > _MOST_NAMES:
        raise ValueError(f"damaged ELF file: {count} versions")
    return count


def _split(paths: list[str]) -> tuple[str, ...]:
    # An empty part is the working directory.
    parts = tuple(part for path in paths if path for part in path.split(":"))
    if len(parts) > _MOST_FOLDERS:
        raise ValueError(f"damaged ELF file: more than {_MOST_FOLDERS} folders of libraries")
    return parts
