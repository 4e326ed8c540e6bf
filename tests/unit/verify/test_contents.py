"""verify.contents: what is read of two images that share layers."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.errors import InvalidError
from builder.smoke.image.opened import open_image
from builder.verify.contents import image_contents, read_both, read_versions
from tests.support.errors import fails
from tests.support.images import distribution, layout

PATHS = sorted(distribution("torch", "2.11.0"))
FOLDER = next(path for path in PATHS if path.endswith("/METADATA")).rpartition("/")[0]


@pytest.mark.parametrize("marker", [f"{FOLDER.replace('/torch-', '/.wh.torch-')}", f"{FOLDER}/.wh..wh..opq"])
def test_a_distribution_that_an_upper_layer_deletes_is_gone(tmp_path: Path, marker: str) -> None:
    both = distribution("torch", "2.11.0")
    old = open_image(layout(tmp_path / "old", [both, {"opt/x": b"x"}]))
    new = open_image(layout(tmp_path / "new", [{marker: b""}, both, {marker: b""}]))
    below = open_image(layout(tmp_path / "below", [{marker: b""}, both]))
    found = [
        image_contents("", read, lambda source, version: None).facts["python"]
        for read in (*read_both(old, new, lambda digest: PATHS), read_both(old, below, lambda digest: PATHS)[1])
    ]
    assert [[*names] for names in found] == [["torch"], [], ["torch"]]


def test_a_layer_with_other_bytes_than_its_digest_says(tmp_path: Path) -> None:
    """A stranger's folder showed the files of a trusted image under the digest of another one."""
    good, evil = (open_image(layout(tmp_path / text, [{"opt/x": text.encode()}])) for text in ("good", "evil"))
    evil.layers[0].path.write_bytes(good.layers[0].path.read_bytes())
    with fails(InvalidError, "blob-damaged"):
        read_both(good, evil, lambda digest: None)
    with fails(InvalidError, "blob-damaged"):
        read_versions(evil, lambda digest: None)
