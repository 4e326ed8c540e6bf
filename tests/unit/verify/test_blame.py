"""The likely cause of a layer's difference: faults planted in files, in the archive, and by another package."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from builder.smoke.image.opened import open_image
from builder.verify.blame import cause_of_layer
from builder.verify.files import differing_files, read_layer
from tests.support.images import Member, distribution, elf, layout, program, tar

SAME: dict[str, Any] = {"opt/a": b"same", "opt/b": program(b"#!/bin/sh\n")}


def cause(tmp_path: Path, theirs: bytes, ours: bytes) -> tuple[list[str], str]:
    read = []
    for name, data in (("theirs", theirs), ("ours", ours)):
        read.append(read_layer(open_image(layout(tmp_path / name, [data])).layers[0]))
    files = list(differing_files(*read))
    return [str(file) for file in files], cause_of_layer(*read, files)


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        ({"opt/t": b"at 10:00:00"}, {"opt/t": b"at 11:00:00"}, "opt/t, line 1: time: 10:00:00, not 11:00:00"),
        ({"opt/x.so": elf(more=b"/a/b.c")}, {"opt/x.so": elf(more=b"/c/b.c")}, "opt/x.so, section .rodata: path: "),
        ({"opt/new": b"1"}, {}, "opt/new: only in the image"),
        ({"opt/a": Member(b"same", 0o600)}, {}, "opt/a: mode 0600, not 0644"),
        (distribution("x", "1.0"), distribution("x", "2.0"), "another wheel of x (1.0 and 2.0)"),
        ({"var/lib/dpkg/status": b"1"}, {"var/lib/dpkg/status": b"2"}, "another Debian package"),
    ],
)
def test_files(tmp_path: Path, theirs: dict[str, Any], ours: dict[str, Any], expected: str) -> None:
    assert cause(tmp_path, tar({**SAME, **theirs}), tar({**SAME, **ours}))[1].startswith(expected)


def test_the_first_file_is_compared_and_not_every_one(tmp_path: Path) -> None:
    theirs = {f"opt/{name}": f"{name} at 10:00:00".encode() for name in "xyz"}
    ours = {f"opt/{name}": f"{name} at 11:00:00".encode() for name in "xyz"}
    files, found = cause(tmp_path, tar(theirs), tar(ours))
    assert len(files) == 3 and found.startswith("opt/x, line 1: time")


def archive(names: list[str], mtime: int = 0) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as file:
        for name in names:
            info = tarfile.TarInfo(name)
            info.mtime = mtime
            file.addfile(info)
    return out.getvalue()


def test_order_of_files(tmp_path: Path) -> None:
    assert cause(tmp_path, archive(["b", "a"]), archive(["a", "b"])) == (
        [],
        "order: another order of files, first at b",
    )


def test_times_of_files(tmp_path: Path) -> None:
    files, found = cause(tmp_path, archive(["a"], 1_700_000_000), archive(["a"], 1_577_836_800))
    assert files == ["a: modification time 2023-11-14T22:13:20Z, not 2020-01-01T00:00:00Z"]
    assert found == "time: files have another modification time, first a"
