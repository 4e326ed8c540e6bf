"""OCI layouts that are damaged, hostile, killed half way, or written by several builds at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.errors import BuilderError, EngineError
from builder.oci.assemble import Image, ImageLayer
from builder.oci.layout import locked, write_layout
from builder.store.store import Store
from tests.support.errors import fails
from tests.support.hostile import KINDS, Outside, killed_at, limit
from tests.support.layouts import blobs, digest, image, names


def theirs(layer: ImageLayer) -> Iterator[bytes]:
    yield b"theirs"


def intact(folder: Path, made: Image) -> bool:
    """Whether every blob of the image is in the layout, and no blob has wrong bytes."""
    found = blobs(folder)
    wanted = {made.digest, made.config_digest, *(layer.digest for layer in made.layers)}
    return wanted <= found.keys() and all(digest(data) == name for name, data in found.items())


def test_a_build_that_was_killed_at_any_point_can_be_repeated(store: Store, tmp_path: Path) -> None:
    made = image(store, b"own", base=(b"theirs",))
    number = 0
    while True:
        out = tmp_path / str(number)
        killed = killed_at(number, lambda out=out: write_layout(made, store, out, name="a", base_blob=theirs))  # type: ignore[misc]
        write_layout(made, store, out, name="b", base_blob=theirs)
        assert names(out)["b"] == made.digest
        assert intact(out, made)
        # A kill may leave a small file that was to become index.json, and nothing else.
        assert not list(out.glob(".partial*"))
        if not killed:
            break
        number += 1
    assert number > 10


def test_builds_that_write_at_once_lose_no_entry(store: Store, tmp_path: Path) -> None:
    made = [image(store, str(n).encode(), config=str(n)) for n in range(8)]
    children = []
    for number, each in enumerate(made):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for turn in range(5):
                    write_layout(each, store, tmp_path / "out", name=f"{number}.{turn}")
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)
    assert names(tmp_path / "out") == {f"{n}.{turn}": each.digest for n, each in enumerate(made) for turn in range(5)}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"oci-layout", "index.json", "blobs"}


def test_a_layout_that_another_process_holds_is_an_error(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builder.oci.layout.PATIENCE", 0.2)
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out"), fails(EngineError, "layout-locked"):
        write_layout(image(store, b"one"), store, tmp_path / "out", name="a")


def test_a_damaged_blob_of_the_right_size_is_replaced(store: Store, tmp_path: Path) -> None:
    made = image(store, b"own", base=(b"theirs",))
    out = tmp_path / "out"
    write_layout(made, store, out, name="a", base_blob=theirs)
    for path in (out / "blobs/sha256").iterdir():
        data = path.read_bytes()
        path.unlink()  # Not in place: the file is the store's own.
        path.write_bytes(bytes(len(data)))
    assert not intact(out, made)
    write_layout(made, store, out, name="a", base_blob=theirs)
    assert intact(out, made)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_waits_and_nothing_outside_is_written(store: Store, tmp_path: Path, kind: str) -> None:
    made, outside = image(store, b"own", base=(b"theirs",)), Outside(tmp_path)
    paths = [made.digest.path, made.config_digest.path, *(layer.digest.path for layer in made.layers)]
    for number, name in enumerate(("oci-layout", "index.json", *paths)):
        out = tmp_path / str(number)
        write_layout(made, store, out, name="a", base_blob=theirs)
        outside.put(kind, out / name)
        with limit():
            try:
                write_layout(made, store, out, name="b", base_blob=theirs)
            except BuilderError:
                assert name in ("oci-layout", "index.json")
            else:
                assert intact(out, made)
        outside.assert_unchanged()
