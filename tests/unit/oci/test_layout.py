"""OCI layouts: complete at every moment, and never written over other files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.errors import EngineError, PinError, UsageError
from builder.oci.assemble import ImageLayer
from builder.oci.layout import write_layout
from builder.store.store import Store
from tests.support.errors import fails
from tests.support.layouts import blobs, digest, image, names


def test_a_layout_holds_every_blob_under_its_hash(store: Store, tmp_path: Path) -> None:
    made = image(store, b"one", b"two")
    write_layout(made, store, tmp_path / "out", name="a:1")
    assert json.loads((tmp_path / "out/oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    assert names(tmp_path / "out") == {"a:1": made.digest}
    assert blobs(tmp_path / "out") == {digest(data): data for data in (b"one", b"two", made.config, made.manifest)}
    entry = json.loads((tmp_path / "out/index.json").read_text())["manifests"][0]
    assert (entry["platform"], entry["size"]) == ({"architecture": "arm64", "os": "linux"}, len(made.manifest))


def test_blobs_are_links_into_the_store(store: Store, tmp_path: Path) -> None:
    write_layout(image(store, b"one"), store, tmp_path / "out", name="a")
    assert (tmp_path / "out/blobs/sha256" / digest(b"one")[7:]).samefile(store.blob(digest(b"one")))


def test_a_damaged_layer_is_not_written(store: Store, tmp_path: Path) -> None:
    made = image(store, b"one")
    path = store.blob(digest(b"one"))
    path.unlink()
    path.write_bytes(b"onf")
    with fails(PinError, "store-blob-damaged"):
        write_layout(made, store, tmp_path / "out", name="a")
    assert not (tmp_path / "out/index.json").exists()
    assert not store.has(digest(b"one"))


def test_blobs_are_copied_where_links_are_not_possible(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cross(self: Path, target: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(Path, "hardlink_to", cross)
    write_layout(image(store, b"one" * 1_000_000), store, tmp_path / "out", name="a")
    assert digest(b"one" * 1_000_000) in blobs(tmp_path / "out")


def test_a_second_image_is_added_and_one_of_the_same_name_replaced(store: Store, tmp_path: Path) -> None:
    first, second, third = image(store, b"one"), image(store, b"two"), image(store, b"three")
    for made, name in ((first, "a"), (second, "b"), (third, "a")):
        write_layout(made, store, tmp_path / "out", name=name)
    assert names(tmp_path / "out") == {"b": second.digest, "a": third.digest}


def test_layers_of_the_base_come_from_its_registry(store: Store, tmp_path: Path) -> None:
    made = image(store, b"own", base=(b"theirs",))
    asked: list[str] = []

    def fetch(layer: ImageLayer) -> Iterator[bytes]:
        asked.append(layer.digest)
        yield from (b"the", b"irs")

    write_layout(made, store, tmp_path / "out", name="a", base_blob=fetch)
    assert blobs(tmp_path / "out")[digest(b"theirs")] == b"theirs"
    write_layout(made, store, tmp_path / "out", name="b", base_blob=fetch)
    assert asked == [digest(b"theirs")]


def test_an_error_keeps_the_old_index(store: Store, tmp_path: Path) -> None:
    old = image(store, b"one")
    write_layout(old, store, tmp_path / "out", name="a")

    def broken(layer: ImageLayer) -> Iterator[bytes]:
        yield b"the"
        raise ConnectionError("cut")

    with pytest.raises((ConnectionError, EngineError)):
        write_layout(image(store, b"own", base=(b"theirs",)), store, tmp_path / "out", name="a", base_blob=broken)
    assert names(tmp_path / "out") == {"a": old.digest}
    for name, data in blobs(tmp_path / "out").items():
        assert digest(data) == name


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"manifests": [1]}'])
def test_a_damaged_index_is_an_error_and_not_changed(store: Store, tmp_path: Path, text: str) -> None:
    write_layout(image(store, b"one"), store, tmp_path / "out", name="a")
    (tmp_path / "out/index.json").write_text(text)
    with fails(UsageError, "layout-index-damaged"):
        write_layout(image(store, b"two"), store, tmp_path / "out", name="b")
    assert (tmp_path / "out/index.json").read_text() == text


def test_a_folder_with_other_files_is_not_changed(store: Store, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("x")
    (tmp_path / "plain").write_text("x")
    with fails(UsageError, "layout-folder-occupied"):
        write_layout(image(store, b"one"), store, tmp_path / "mine", name="a")
    with fails(UsageError, "layout-is-file"):
        write_layout(image(store, b"one"), store, tmp_path / "plain", name="a")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]


def test_a_folder_that_cannot_be_created_is_an_error(store: Store, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    with fails(EngineError, "disk-write-failed"):
        write_layout(image(store, b"one"), store, tmp_path / "plain/below", name="a")
