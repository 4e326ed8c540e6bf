"""Small packages that unpack to much, or take long, are refused soon, and with little memory and disk."""

from __future__ import annotations

import bz2
import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.unpack.entry import UnpackError, from_bytes
from builder.unpack.spool import Spool
from builder.unpack.tree import entries, normalise
from tests.support.debs import PASSWD, ar, deb
from tests.support.errors import fails
from tests.support.limits import ends
from tests.support.tars import Link, tar
from tests.support.wheels import archive, wheel

GIB = 1 << 30
FEW = 5000


def header(name: str, size: int = 0) -> bytes:
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.PAX_FORMAT)


def zeros(name: str) -> bytes:
    """A compressed archive with a file of 2 GiB."""
    return gzip.compress(header(name, 2 * GIB)) + gzip.compress(bytes(64 << 20), 1) * 32 + gzip.compress(bytes(1024))


def packed(data: bytes, control: bytes = b"") -> bytes:
    plain = tar({"control": "Package: tool\nVersion: 1\nArchitecture: all\n"})
    return ar({"debian-binary": b"2.0\n", "control.tar.gz": control or gzip.compress(plain), "data.tar.gz": data})


def deep(count: int, depth: int) -> bytes:
    members = b"".join(header(f"usr/{number}/" + "a/" * depth + "f") for number in range(count))
    return gzip.compress(members + tar(PASSWD))


DEBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a large file": (lambda: packed(zeros("usr/large")), "unpacks-too-large"),
    "many control files": (
        lambda: packed(gzip.compress(bytes(1024)), gzip.compress(tar({f"x{number}": "" for number in range(1001)}))),
        "deb-control-invalid",
    ),
    "a large control archive": (lambda: packed(gzip.compress(bytes(1024)), zeros("other")), "unpacks-too-large"),
    "many files": (lambda: packed(gzip.compress(header("usr/a") * (FEW + 1) + bytes(1024))), "unpacks-too-large"),
    "a deep path": (lambda: packed(deep(1, 300_000)), "member-path-too-long"),
    "deep paths": (lambda: packed(deep(300, 1900)), "layer-too-many-files"),
    "a long target of a link": (
        lambda: packed(gzip.compress(tar({"usr/a": Link("b" * 5000)}))),
        "member-path-too-long",
    ),
    "long names": (lambda: packed(deep(3000, 1900)), "unpacks-too-large"),
    "a long control field": (
        lambda: deb("tool", {"usr/a": "a"}, fields={"Description": "x" + "\n a" * 340_000}),
        "root-base-passwd-missing",
    ),
    "a large list of users": (
        lambda: deb("tool", {**PASSWD, "usr/share/base-passwd/passwd.master": "a:\n" * (8 << 20)}),
        "entry-too-large",
    ),
}


def declared(size: int) -> bytes:
    """A wheel whose table gives its first file this size."""
    data = bytearray(wheel("tool", {"tool.py": "x"}))
    place = data.index(b"PK\1\2")
    data[place + 24 : place + 28] = struct.pack("<I", size)
    return bytes(data)


def understated(content: bytes, method: int) -> bytes:
    """A wheel whose table says that the content unpacks to one byte, "["."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        made.writestr("tool-1.0.dist-info/RECORD", "")
        made.writestr("tool-1.0.dist-info/entry_points.txt", content)
        member = made.infolist()[-1]
        member.compress_type, member.file_size, member.CRC = method, 1, zlib.crc32(b"[")
    return out.getvalue()


def deflated() -> bytes:
    """Of two gigabytes."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    start = packer.compress(b"[") + packer.flush(zlib.Z_FULL_FLUSH)
    return start + (packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)) * 2048


def large_table() -> bytes:
    data = bytearray(wheel("tool", {"tool.py": "x"}))
    place = data.index(b"PK\5\6")
    data[place + 12 : place + 16] = struct.pack("<I", 1 << 25)
    return bytes(data)


WHEELS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a large file": (lambda: declared(0xFFFFFFF0), "unpacks-too-large"),
    "a large table": (large_table, "wheel-table-too-large"),
    "a deep path": (lambda: wheel("tool", {"a/" * 30_000 + "f": "x"}), "member-path-too-long"),
    "large scripts": (
        lambda: wheel("tool", {f"tool-1.0.data/scripts/{name}": bytes(31 << 20) for name in "abcde"}),
        "unpacks-too-large",
    ),
    "more than the table says": (
        lambda: understated(deflated(), zipfile.ZIP_DEFLATED),
        "wheel-entry-points-invalid",
    ),
    "another compression": (lambda: understated(bz2.compress(b"["), zipfile.ZIP_BZIP2), "wheel-compression-unknown"),
    "a gap in a line of entry points": (
        lambda: archive(
            {
                "tool-1.0.dist-info/RECORD": b"",
                "tool-1.0.dist-info/entry_points.txt": b"[console_scripts]\na" + b" " * 900_000 + b"b\n",
            }
        ),
        "wheel-entry-points-invalid",
    ),
    "many entry points": (
        lambda: archive(
            {
                "tool-1.0.dist-info/RECORD": b"",
                "tool-1.0.dist-info/entry_points.txt": b"[console_scripts]\na=b\n" + b" c\n" * (10 << 20),
            }
        ),
        "wheel-member-too-large",
    ),
}


@pytest.mark.parametrize("case", DEBS)
def test_a_package(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builder.unpack.bounds.FILES", FEW)
    monkeypatch.setattr("builder.unpack.bounds.NAMES", 4 << 20)
    make, id = DEBS[case]
    (tmp_path / "tool.deb").write_bytes(make())
    refused(tmp_path, {"debs": [{"file": "tool.deb"}], "root": True}, id)


@pytest.mark.parametrize("case", WHEELS)
def test_a_wheel(case: str, tmp_path: Path) -> None:
    make, id = WHEELS[case]
    (tmp_path / "tool.whl").write_bytes(make())
    refused(tmp_path, {"wheels": [{"file": "tool.whl"}], "scheme": {"site": "usr/lib/x"}}, id)


def test_many_files_of_one_deep_folder() -> None:
    """A package of 230 kB."""
    folder = "usr/" + "a/" * 1980
    found = [from_bytes(f"{folder}{number}", b"") for number in range(15_000)]
    ends(lambda: normalise(found, is_root=False))


def refused(folder: Path, spec: dict[str, object], id: str) -> None:
    empty = {"root": False, "debs": [], "wheels": [], "scheme": None, "files": [], "shared": []}
    with Spool(str(folder)) as spool:

        def work() -> None:
            with fails(UnpackError, id):
                entries({**empty, **spec}, lambda item: folder / item["file"], spool)

        ends(work, memory=400 << 20)
        assert spool.size < 1 << 30
