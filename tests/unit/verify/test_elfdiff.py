"""Comparing ELF files of strangers."""

from __future__ import annotations

import random
import struct

import pytest

from builder.smoke.elf.object import Read
from builder.verify.elfdiff import Budget, compare_elf
from tests.support.limits import ends


def _symbols(count: int, seed: int = 1) -> bytes:
    """An object whose symbols have names that are parts of each other: 24 bytes each, and 2000 characters in memory."""
    letters = random.Random(seed).randbytes(count).translate(bytes(97 + number % 26 for number in range(256)))
    texts = b"\0" + b"\0".join(letters[start : start + 4094] for start in range(0, count, 4094)) + b"\0"
    table = b"".join(struct.pack("<IBBHQQ", 1 + number, 0, 0, 0, 0, 0) for number in range(count))
    body, headers = b"", bytes(64)
    for kind, linked, content in ((3, 0, texts), (2, 1, table)):
        headers += struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, 64 + len(body), len(content), linked, 0, 8, 0)
        body += content + bytes(-len(content) % 8)
    head = struct.pack("<HHIQQQIHHHHHH", 1, 183, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, 3, 1)
    return b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + head + body + headers


def test_symbols_whose_names_are_parts_of_each_other() -> None:
    data = _symbols(500_000)

    def read(offset: int, size: int) -> bytes:
        return data[offset : offset + size]

    def work() -> None:
        with pytest.raises(ValueError, match="too long names"):
            compare_elf(read, read)

    ends(work, 600 << 20)


def test_several_files_share_a_budget() -> None:
    """Ten libraries of a million symbols, out of a layer that compresses well, took 26 s."""
    data, budget = _symbols(1000), Budget(symbols=5000)

    def read(offset: int, size: int) -> bytes:
        return data[offset : offset + size]

    for _ in range(2):
        assert not compare_elf(read, read, budget).pairs
    with pytest.raises(ValueError, match="too many symbols"):
        compare_elf(read, read, budget)


def test_names_of_symbols_are_not_kept() -> None:
    """Two objects of three megabytes took 440 MB."""
    files = _symbols(90_000), _symbols(90_000, 2)

    def read(number: int) -> Read:
        return lambda offset, size: files[number][offset : offset + size]

    def work() -> None:
        lines = compare_elf(read(0), read(1)).lines
        assert [line.split(":")[0].split(" ", 1)[1] for line in lines[-2:]] == [
            "symbols only in the first",
            "symbols only in the second",
        ]
        assert all(" more" in line for line in lines[-2:])

    ends(work, 150 << 20)
