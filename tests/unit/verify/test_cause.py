"""The likely cause of two files that differ: each kind of fault, planted in a text and in an ELF file, by its name."""

from __future__ import annotations

import gzip
import os
import py_compile
import random
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from builder.verify.cause import examine
from tests.support.fuzz import SEED, times
from tests.support.images import elf, fatbin
from tests.support.limits import ends

FAULTS = {
    "time": (b"built 2026-11-22T11:20:00Z here", b"built 2026-11-21T09:00:00Z here", "time: 2026-11-22T11:20:00Z"),
    "date of C": (b"on Nov 22 2026 by cc", b"on Nov  1 2025 by cc", "time: Nov 22 2026"),
    "seconds": (b"stamp=1795345200;", b"stamp=1795345201;", "time: 1795345200, not 1795345201"),
    "process of nvcc": (b"tmpxft_0000a1b2_00000000-6_x.cu", b"tmpxft_0000a1c7_00000000-6_x.cu", "process id: tmpxft"),
    "process id": (b"lock of pid 4711 held", b"lock of pid 815 held", "process id: pid 4711, not pid 815"),
    "path": (b"/build/one/src/a.c: ok", b"/home/two/src/a.c: ok", "path: /build/one/src/a.c, not /home/two/src/a.c"),
    "random seed": (b"_GLOBAL__N__3c8b6b6a_4_a_cu", b"_GLOBAL__N__91fe02bb_4_a_cu", "random seed or hash: "),
    "uuid": (
        b"id 4b1b9a6e-2f5b-4a43-9c39-8a0f6f7b4c11.",
        b"id 9d0c1f0e-7c1f-4f8a-8a63-0b7e5d1f2a90.",
        "random seed or hash: 4b1b9a6e",
    ),
    "seed": (b"seed=abc", b"seed=xyz", "random seed or hash: seed=abc, not seed=xyz"),
    "counter": (b"object 17 of", b"object 23 of", "process id or counter: 17, not 23"),
    "nothing likely": (b"one word", b"two word", ""),
}


@pytest.mark.parametrize(("old", "new", "cause"), FAULTS.values(), ids=FAULTS)
def test_a_text(old: bytes, new: bytes, cause: str) -> None:
    found = examine("etc/x", b"first\n" + old + b"\nlast\n", b"first\n" + new + b"\nlast\n")
    assert found.place == "line 2"
    assert found.cause.startswith(cause) and bool(found.cause) == bool(cause), found


@pytest.mark.parametrize(("old", "new", "cause"), FAULTS.values(), ids=FAULTS)
def test_a_library(old: bytes, new: bytes, cause: str) -> None:
    found = examine("opt/x.so", *(elf(soname="x", more=b"\0\1" + text + b"\0more\0") for text in (old, new)))
    assert found.place == "section .rodata"
    assert found.cause.startswith(cause) and bool(found.cause) == bool(cause), found


def test_order() -> None:
    assert examine("x", b"b\na\nc\n", b"a\nb\nc\n").cause == "order: the same lines in another order"
    assert examine("x", b'{"b": 1, "a": 1}', b'{"a": 1, "b": 1}').cause == "order: the same words in another order"


def test_another_compiler() -> None:
    found = examine(
        "x", elf(code=b"\1", comment=b"GCC: (Debian 12.2.0-14) 12.2.0\0"), elf(code=b"\2", comment=b"GCC: 14\0")
    )
    assert found.cause == "another compiler: GCC: (Debian 12.2.0-14) 12.2.0, not GCC: 14"
    assert "section .comment: 31 bytes, not 8" in found.details


def test_another_compiler_flag() -> None:
    same = b"GCC: (Debian 12.2.0-14) 12.2.0\0"
    found = examine("x", elf(code=b"\1", comment=same), elf(code=b"\2", comment=same))
    assert (found.place, found.cause.partition(":")[0]) == ("section .text", "another compiler flag or source")
    found = examine("x", elf(gpu=fatbin((2, 121, 0))), elf(gpu=fatbin((2, 120, 0))))
    assert found.cause == "another compiler flag: GPU code sm_121 (1), not sm_120 (1)"
    assert "GPU code: sm_121 (1), not sm_120 (1)" in found.details


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_libraries_of_a_real_compiler(tmp_path: Path) -> None:
    source = tmp_path / "a.c"
    source.write_text('int twice(int a) { return a + a; }\nconst char *made(void) { return __DATE__ " " __TIME__; }\n')

    def compiled(*flags: str) -> bytes:
        out = tmp_path / "a.so"
        words = ["gcc", "-shared", "-fPIC", "-Wl,--build-id=none", "-Wno-builtin-macro-redefined", *flags]
        subprocess.run([*words, "-o", out, source], check=True, capture_output=True)
        return out.read_bytes()

    fixed = ('-D__DATE__="Nov 22 2026"', '-D__TIME__="10:00:00"')
    usual = compiled("-O2", *fixed)
    assert compiled("-O2", *fixed) == usual
    assert examine("a.so", usual, compiled("-O0", *fixed)).cause.startswith("another compiler flag or source")
    other = examine("a.so", usual, compiled("-O2", '-D__DATE__="Nov 21 2026"', '-D__TIME__="10:00:00"'))
    assert (other.place, other.cause) == ("section .rodata", "time: Nov 22 2026, not Nov 21 2026")
    more = examine("a.so", usual, compiled("-O2", *fixed, "-Dtwice=thrice"))
    assert any("symbols only in the second: thrice" in line for line in more.details), more


def test_times_in_headers(tmp_path: Path) -> None:
    assert (
        examine("x.gz", gzip.compress(b"x", mtime=1), gzip.compress(b"x", mtime=2)).cause
        == "time: in the header of gzip"
    )
    source = tmp_path / "a.py"
    source.write_text("a = 1\n")
    codes = []
    for seconds in (1_700_000_000, 1_700_000_001):
        os.utime(source, (seconds, seconds))
        made = py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
        codes.append(Path(str(made)).read_bytes())
    assert examine("a.pyc", *codes).cause == "time: of the source, in bytecode"
    archives = []
    for year in (2020, 2026):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr(zipfile.ZipInfo("a", (year, 1, 1, 0, 0, 0)), b"x")
        archives.append((tmp_path / "a.zip").read_bytes())
    assert examine("a.zip", *archives).cause == "time: of a member of a zip file"


@pytest.mark.parametrize("cut", [0, 4, 20, 64, 100, 300])
def test_a_damaged_library_is_compared_as_bytes(cut: int) -> None:
    whole = elf(soname="x", more=b"text", code=b"\1")
    found = examine("x", whole, whole[:cut])
    assert found.place


def test_damaged_files_raise_nothing_and_take_no_time() -> None:
    whole = elf(soname="x", gpu=fatbin((2, 121, 0)), more=b"/a/b.c 10:00:00", code=b"\1", comment=b"GCC\0")
    pieces = [b"\xff" * 8, bytes(8), (1 << 40).to_bytes(8, "little"), b"\0\0\0\x7f1234"]
    chosen = random.Random(SEED)

    def work() -> None:
        for _ in range(times(500)):
            data = bytearray(whole)
            for _ in range(chosen.randint(1, 6)):
                place = chosen.randrange(len(data) - 8)
                data[place : place + 8] = chosen.choice(pieces)
            assert examine("x", whole, bytes(data[: chosen.randrange(9, len(data))])).place

    ends(work, memory=300 << 20)


def test_the_words_of_long_texts_are_not_sorted() -> None:
    """Two layers of nine kilobytes took 560 MB."""
    long = b"ab " * ((8 << 20) // 3 - 1)
    ends(lambda: examine("x", b"b " + long, long + b"b "), memory=100 << 20)


@pytest.mark.parametrize("text", [b"/", b"1", b"/a", b"_0", b"12:34:56", b"2026-01-01", b"tmpxft_"])
def test_patterns_take_no_time(text: bytes) -> None:
    long = text * (400 // len(text))
    ends(lambda: examine("x", long + b"x" + long, long + b"y" + long), memory=300 << 20)
