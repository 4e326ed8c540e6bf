"""Layers that name a table of their files, which some engines run in place of what others unpack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builder.digest import Digest
from builder.smoke.image.opened import open_image
from builder.smoke.static.run import run_static
from tests.support.images import layout, pack, tar

STARGZ = (
    b"\x1f\x8b\x08\x04"
    + bytes(4)
    + b"\x00\xff\x1a\x00SG\x16\x00"
    + b"%016xSTARGZ" % 99
    + bytes.fromhex("010000ffff")
    + bytes(8)
)
"""The footer of eStargz: an empty member of gzip, with the place of the table in its header."""


CHUNKED = b"\x50\x2a\x4d\x18\x40\x00\x00\x00" + bytes(56)
"""The footer of zstd:chunked: a frame that readers of zstd skip. Its name is at the end."""


@pytest.mark.parametrize(
    ("how", "footer"), [("gzip", STARGZ), ("zstd", CHUNKED + b"GnUlInUx"), ("zstd", CHUNKED + b"GNUlInUx")]
)
def test_a_layer_with_a_table_of_contents_fails(tmp_path: Path, how: str, footer: bytes) -> None:
    """Some engines run the files that the table names, which are not those that other programs unpack."""
    layer = pack(tar({"opt/a": b"1"}), how)
    assert blobs_of(layout(tmp_path / "plain", [layer], how="plain"))
    found = blobs_of(layout(tmp_path / "table", [layer + footer], how="plain"))
    assert "ends with the place of a table" in found


@pytest.mark.parametrize(
    "name",
    [
        "io.github.containers.zstd-chunked.manifest-checksum",
        "io.containers.zstd-chunked.manifest-position",
        "containerd.io/snapshot/stargz/toc.digest",
        "containerd.io/snapshot/overlaybd/blob-digest",
        "com.amazon.soci.index-digest",
    ],
)
@pytest.mark.parametrize("place", ["layer", "manifest"])
def test_an_annotation_that_names_a_table_of_contents_fails(tmp_path: Path, name: str, place: str) -> None:
    where = layout(tmp_path, [{"opt/a": b"1"}])
    assert blobs_of(where) == "1 layers hash to their digests"
    manifest = open_image(where).manifest
    (manifest["layers"][0] if place == "layer" else manifest)["annotations"] = {"a": "b", name: "x"}
    data = json.dumps(manifest).encode()
    (where / Digest.of(data).path).write_bytes(data)
    assert f"has the annotation {name}" in blobs_of(where, Digest.of(data))


def blobs_of(where: Path, digest: Digest | None = None) -> str:
    """What the check of blobs finds."""
    return next(each.message for each in run_static(where, digest, []).results if each.id == "image-blobs")
