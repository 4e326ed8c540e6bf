"""Images of some kilobytes that took minutes or gigabytes: each ends in seconds, with little memory."""

from __future__ import annotations

import contextlib
import io
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard

from builder.errors import InvalidError
from builder.smoke.static.run import run_static
from tests.support import images
from tests.support.errors import fails
from tests.support.images import Member, elf, layout, link, tar
from tests.support.limits import ends
from tests.support.nightly import nightly_but

MEMORY = 1 << 30
INFO = "opt/x-packages/d-1.dist-info"
Layers = list[dict[str, Any] | bytes]
USUAL = ("needed versions", "links to files that are read", "lines of RECORD", "fields of RECORD", "deep whiteouts")
"""Images of every run; the others take longest and are in the nightly job."""


def _object(*sections: tuple[str, int, int, int, bytes]) -> bytes:
    """An ELF file with these sections: name, type, number of its names, info, content."""
    names = b"\0" + b"".join(section[0].encode() + b"\0" for section in sections) + b".shstrtab\0"
    body, headers = b"", bytes(64)
    for name, kind, linked, info, content in (*sections, (".shstrtab", 3, 0, 0, names)):
        place = names.index(b"\0" + name.encode() + b"\0") + 1
        headers += struct.pack("<IIQQQQIIQQ", place, kind, 0, 0, 64 + len(body), len(content), linked, info, 8, 0)
        body += content + bytes(-len(content) % 8)
    count = len(sections) + 2
    head = struct.pack("<HHIQQQIHHHHHH", 3, 183, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, count, count - 1)
    return b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + head + body + headers


def _versions(count: int) -> bytes:
    """A library that needs so many versions of one other."""
    names = b"\0libc.so.6\0" + b"".join(b"G%06d\0" % number for number in range(count))
    needs = b"".join(
        struct.pack("<HHIIIIHHII", 1, 1, 1, 16, 0 if number == count - 1 else 32, 0, 0, 2, 11 + 8 * number, 0)
        for number in range(count)
    )
    return _object((".dynstr", 3, 0, 0, names), (".gnu.version_r", 0x6FFFFFFE, 1, count, needs))


def _needs(offsets: Sequence[int], names: bytes) -> bytes:
    """A library that needs the libraries with the names at these places."""
    tags = b"".join(struct.pack("<qQ", 1, offset) for offset in offsets) + bytes(16)
    return _object((".dynstr", 3, 0, 0, names), (".dynamic", 6, 1, 0, tags))


def _overlapping_names() -> Layers:
    """Each name is the end of another."""
    one = _needs(range(1, 4090), b"\0" + b"a" * 4095 + b"\0")
    return [{f"opt/{number}.so": one for number in range(300)}]


def _missing_libraries() -> Layers:
    names = b"\0" + b"".join(b"%07x\0" % number for number in range(125_000))
    files = {
        f"usr/lib/l{number}.so": _needs([1 + 8 * (number * 4000 + each) for each in range(4000)], names)
        for number in range(30)
    }
    files |= {f"usr/lib/l{number}.so": elf() for number in range(30, 1500)}
    return [{**files, "opt/x-packages/vllm/_C.so": elf(needed=[f"l{number}.so" for number in range(1500)])}]


def _patterns() -> Layers:
    files: dict[str, Any] = {f"opt/{number}": b"" for number in range(20_000)}
    files["etc/ld.so.conf"] = b"".join(b"include x*%d\n" % number for number in range(60_000))
    return [{**files, "opt/x-packages/vllm/_C.so": elf(needed=["libq.so"])}]


def _linked() -> Layers:
    """Reading each file needs another pass over the layer."""
    files: dict[str, Any] = {f"opt/t/{number}": b"Name: x\n" for number in range(1500)}
    files |= {f"opt/x-packages/d{number}-1.dist-info/METADATA": link(f"/opt/t/{number}") for number in range(1500)}
    return [{**files, "srv/last": bytes(100 << 20)}]


IMAGES: dict[str, Callable[[], Layers]] = {
    "empty files that are copied": lambda: [
        {f"opt/x-packages/d{number}-1.dist-info/METADATA": b"" for number in range(12_000)}
    ],
    "needed versions": lambda: [{"opt/a.so": _versions(60_000)}],
    "overlapping names": _overlapping_names,
    "missing libraries": _missing_libraries,
    "patterns of ld.so.conf": _patterns,
    "links to files that are read": _linked,
    "lines of RECORD": lambda: [
        {"opt/z": b""},
        {f"{INFO}/METADATA": b"Name: d\n", f"{INFO}/RECORD": b"a,,\n" * (12 << 20)},
    ],
    "fields of RECORD": lambda: [
        {"opt/z": b""},
        {f"{INFO}/METADATA": b"Name: d\n", f"{INFO}/RECORD": b"," * (60 << 20)},
    ],
    "deep whiteouts": lambda: [
        {"srv/x": b""},
        tar({f"opt/{'a/' * 1500}.wh.{number}": Member() for number in range(8000)}, parents=False),
    ],
}


@pytest.mark.parametrize("name", nightly_but(IMAGES, *USUAL))
def test_a_small_image_takes_seconds_and_little_memory(tmp_path: Path, name: str) -> None:
    image = layout(tmp_path, IMAGES[name]())

    def work() -> None:
        assert run_static(image, None, []).results

    ends(work, MEMORY)


def test_preloaded_libraries_are_looked_up_in_time(tmp_path: Path) -> None:
    files = {f"usr/lib/l{each}.so": elf(needed=[f"libq{name}.so" for name in range(40)]) for each in range(30)}
    files["opt/x-packages/vllm/_C.so"] = elf(needed=[f"l{each}.so" for each in range(30)])
    image = layout(tmp_path, [files], Env=["LD_PRELOAD=" + "a/l " * 900_000])
    ends(lambda: run_static(image, None, []))


def _zip(*files: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, data in enumerate(files):
            archive.writestr(str(number), data)
    return made.getvalue()


def test_files_inside_each_other_have_one_limit(tmp_path: Path) -> None:
    """36 kB: a zip of 900 zips of 64 MiB."""
    image = layout(tmp_path, [{"opt/a.zip": _zip(*[_zip(b"a" * (64 << 20))] * 900)}])

    def work() -> None:
        with fails(InvalidError, "layer-too-large"):
            run_static(image, None, [])

    ends(work, MEMORY)


def test_the_window_of_a_layer_is_that_of_container_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the layers that are read at once needs its window in memory."""

    def pack(data: bytes, how: str) -> bytes:
        parameters = zstandard.ZstdCompressionParameters(window_log=window)
        made = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        return made.compress(data) + made.flush()

    monkeypatch.setattr(images, "pack", pack)
    for window in (25, 27):
        image = layout(tmp_path / str(window), [{"opt/a": bytes(1 << 20)}])
        with fails(InvalidError, "layer-unreadable") if window == 27 else contextlib.nullcontext():
            assert run_static(image, None, []).results
