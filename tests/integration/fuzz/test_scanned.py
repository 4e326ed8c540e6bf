"""Damaged files that the static tier reads in an image: compressed and nested files, ELF files."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builder.smoke.image.scan import read_object
from builder.smoke.image.secrets import find_secrets
from builder.smoke.image.textscan import Limit, pieces
from tests.support.fuzz import times
from tests.support.hostile import limit
from tests.support.images import SM_121, elf, fatbin


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", "token = x" * 50)
        archive.writestr("b", b"\0" * 500)
    return file.getvalue()


def search(data: bytes) -> None:
    file = io.BytesIO(data)
    for piece in pieces(file.read(128), file.read, Limit()):
        list(find_secrets("a", piece))


LIBRARY = elf(needed=["libc.so.6"], runpath="$ORIGIN", versions={"libc.so.6": ["GLIBC_2.34"]}, gpu=fatbin(SM_121))
NESTED = lzma.compress(bz2.compress(gzip.compress(zipped())))


@pytest.mark.parametrize(
    ("data", "read"),
    [
        (zipped(), search),
        (NESTED, search),
        (gzip.compress("token = abc".encode("utf-16") * 20), search),
        (LIBRARY, lambda data: read_object(lambda offset, size: data[offset : offset + size])),
    ],
    ids=["zip", "nested", "utf-16", "elf"],
)
def test_a_damaged_file_is_read_in_time(data: bytes, read: Callable[[bytes], object]) -> None:
    @settings(max_examples=times(100), deadline=None, database=None)
    @given(st.integers(0, len(data) - 1), st.integers(0, 60), st.binary(max_size=16))
    def damaged(place: int, removed: int, put: bytes) -> None:
        with limit():
            read(data[:place] + put + data[place + removed :])

    damaged()


def test_bombs_end_in_time() -> None:
    header = b"PK\x03\x04" + bytes(4) + b"\x08\0" + bytes(20)
    for data in (
        gzip.compress(bytes(100 << 20), 1),
        gzip.compress(gzip.compress(bytes(70 << 20), 1)),
        header * 100_000,
    ):
        with limit():
            search(data)
