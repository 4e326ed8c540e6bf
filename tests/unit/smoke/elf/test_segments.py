"""The loader finds its tables by segments: they are those that sections name, or the file counts as damaged."""

from __future__ import annotations

import io
import struct

import pytest

from builder.smoke.elf.dynamic import Dynamic, read_dynamic
from builder.smoke.elf.object import reader, sections
from tests.support.images import elf

NEEDED = {"needed": ["liba.so"], "versions": {"libc.so.6": ["GLIBC_2.17"]}, "provides": ["X_1"]}
ADDRESS = 0x10000


def _read(data: bytes) -> Dynamic:
    return read_dynamic(reader(io.BytesIO(data)))


def _mapped(data: bytes, *more: tuple[int, int, int, int], dynamic: int | None = None, strings: int = 0) -> bytes:
    """The file with program headers at its end: all of it is mapped at ADDRESS. more: type, offset, address, size.

    dynamic: the address of the dynamic section, by default where it is; strings: is added to that of the names.
    """
    rows = {row.name: row for row in sections(reader(io.BytesIO(data)))}
    table = rows[".dynamic"]
    tags = struct.pack("<qQ", 5, ADDRESS + rows[".dynstr"].offset + strings)
    for tag, name in ((0x6FFFFFFE, ".gnu.version_r"), (0x6FFFFFFC, ".gnu.version_d")):
        tags += struct.pack("<qQ", tag, ADDRESS + rows[name].offset) if name in rows else b""
    # The tags of addresses come in place of the padding that `elf` was asked for.
    text = bytearray(data)
    text[table.offset : table.offset + len(tags)] = tags
    place = ADDRESS + table.offset if dynamic is None else dynamic
    programs = [(1, 0, ADDRESS, len(data)), *more, (2, table.offset, place, table.size)]
    struct.pack_into("<Q", text, 32, len(data))
    struct.pack_into("<HH", text, 54, 56, len(programs))
    return bytes(text) + b"".join(
        struct.pack("<IIQQQQQQ", kind, 4, offset, address, address, size, size, 8)
        for kind, offset, address, size in programs
    )


def _padded() -> bytes:
    """A library whose first three needed libraries are room for other tags."""
    return elf(needed=["1", "2", "3", *NEEDED["needed"]], versions=NEEDED["versions"], provides=NEEDED["provides"])


def test_the_same_tables() -> None:
    found = _read(_mapped(_padded()))
    assert (found.needed, set(found.versions), found.provides) == (("liba.so",), {"libc.so.6"}, {"X_1"})
    # A file of debug information has segments without bytes.
    assert _read(_mapped(_padded(), (2, 0, 0, 0))).needed == ("liba.so",)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (_mapped(_padded(), dynamic=ADDRESS + 64), "another dynamic section"),
        (_mapped(_padded(), dynamic=7), "another dynamic section"),
        (_mapped(_padded(), (2, 64, ADDRESS + 64, 16)), "another dynamic section"),
        (_mapped(_padded(), strings=1), "another table of names"),
        # The second mapping covers the page of the first one.
        (_mapped(_padded(), (1, 0, ADDRESS + 4000, 64)), "overlap"),
    ],
)
def test_other_tables(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _read(data)


def test_a_file_without_sections_has_no_other_libraries() -> None:
    data = bytearray(_mapped(_padded()))
    struct.pack_into("<Q", data, 40, 0)
    with pytest.raises(ValueError, match="another dynamic section"):
        _read(bytes(data))


def test_a_dynamic_section_without_end() -> None:
    data = _mapped(elf(needed=["1", "2", "3", "4"], **{name: NEEDED[name] for name in ("versions", "provides")}))
    rows = {row.name: row for row in sections(reader(io.BytesIO(data)))}
    cut = bytearray(data)
    cut[rows[".dynamic"].offset + 64 : rows[".dynamic"].offset + 80] = struct.pack("<qQ", 1, 1)
    with pytest.raises(ValueError, match="no end"):
        _read(bytes(cut))
