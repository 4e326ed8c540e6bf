"""The files in which two layers differ, each kind of difference by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builder.smoke.image.opened import open_image
from builder.verify.files import differing_files, read_layer
from tests.support.images import Member, hard, layout, link, tar

SAME: dict[str, Any] = {"opt/same": b"same", "opt/link": link("same")}


def lines(tmp_path: Path, theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    read = []
    for name, files in (("theirs", theirs), ("ours", ours)):
        image = open_image(layout(tmp_path / name, [tar({**SAME, **files})]))
        read.append(read_layer(image.layers[0]))
    return [str(found) for found in differing_files(*read)]


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        ({}, {}, []),
        ({"opt/a": b"1"}, {"opt/a": b"2"}, ["opt/a: content"]),
        ({"opt/a": b"1"}, {"opt/a": b"22"}, ["opt/a: 1 bytes, not 2"]),
        ({"opt/a": b"1"}, {}, ["opt/a: only in the image"]),
        ({}, {"opt/a": b"1"}, ["opt/a: only in the rebuilt layer"]),
        ({"opt/a": link("b")}, {"opt/a": link("c")}, ["opt/a: link to b, not c"]),
        ({"opt/a": link("b")}, {"opt/a": b""}, ["opt/a: symlink, not file"]),
        ({"opt/a": Member(b"", mode=0o4755)}, {"opt/a": Member(b"", mode=0o755)}, ["opt/a: mode 4755, not 0755"]),
        ({"opt/a": Member(b"", uid=7)}, {"opt/a": b""}, ["opt/a: owner 7:0, not 0:0"]),
        ({"opt/z": hard("opt/same")}, {"opt/z": b"same"}, ["opt/z: hard link"]),
        (
            {"opt/a": Member(b"", pax=(("SCHILY.xattr.user.x", "1"),))},
            {"opt/a": b""},
            ["opt/a: extended attribute user.x"],
        ),
        ({"opt/.wh.a": b""}, {}, ["opt/a: deletes files of lower layers, in one of the two only"]),
        (
            {"srv/.wh..wh..opq": b""},
            {"srv/a": b""},
            ["srv/a: only in the rebuilt layer", "srv: deletes files of lower layers, in one of the two only"],
        ),
    ],
)
def test_a_difference_is_named(
    tmp_path: Path, theirs: dict[str, Any], ours: dict[str, Any], expected: list[str]
) -> None:
    assert lines(tmp_path, theirs, ours) == expected
