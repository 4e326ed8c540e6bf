"""smoke.image.unpack: an unpacked image is what a container sees, and harmless on the host."""

from __future__ import annotations

import os
from pathlib import Path

from builder.smoke.cpu.sandbox import FIRST_ID, IDS
from builder.smoke.image.opened import open_image
from builder.smoke.image.unpack import unpack
from tests.support.images import Files, Member, folder, hard, layout, link


def test_unpacked_image(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    layers: list[Files] = [
        {
            "usr/bin/a": Member(b"1", 0o4755, uid=7),
            "usr/bin/b": hard("usr/bin/a", 0o4755, 7),
            "escape": link(str(outside)),
            "gone/x": b"",
            "srv": folder(0o1777),
        },
        {"usr/bin/a": Member(b"2", 0o600), ".wh.gone": b"", "private": folder(0o500), "private/x": b"x"},
        {"escape/file": b"inside", "etc/abs": link("/etc/hosts")},
    ]
    image = open_image(layout(tmp_path / "image", layers))
    first_id = FIRST_ID if os.geteuid() == 0 else None
    root = unpack(image, tmp_path / "work", first_id=first_id, ids=IDS)
    assert (root / "usr/bin/a").read_bytes() == b"2"
    assert (root / "usr/bin/b").read_bytes() == b"1"
    assert (root / "usr/bin/b").stat().st_mode & 0o7777 == 0o755, "programs of an image are setuid on the host"
    assert (tmp_path / "work").stat().st_mode & 0o777 == 0o700
    assert (root / "srv").stat().st_mode & 0o7777 == 0o1777
    assert (root / "private").stat().st_mode & 0o777 == 0o500
    assert (root / "etc/abs").readlink() == Path("/etc/hosts")
    assert not (root / "gone").exists()
    assert (root / "escape" / "file").read_bytes() == b"inside"
    assert not list(outside.iterdir())
    if first_id is not None:
        assert (root / "usr/bin/b").stat().st_uid == first_id + 7
        assert (root / "escape").lstat().st_uid == first_id
    assert unpack(image, tmp_path / "work") == root
