"""The store on a full or read-only disk: an error, and no partial file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from builder.errors import EngineError, ExitCode
from builder.store.store import Store
from tests.support.errors import fails
from tests.support.storefiles import KEY, blobs, record, temporary


@pytest.mark.parametrize("last", [False, True], ids=["while writing", "at the end"])
def test_a_full_disk_is_an_error_and_leaves_no_file(small_disk: Path, last: bool) -> None:
    store = Store(small_disk)
    (small_disk / "ballast").write_bytes(bytes(600_000))
    with fails(EngineError, "disk-full") as caught, store.writer() as writer:
        writer.write(b"x" * (500_000 if last else 5_000_000))
        writer.commit()
    assert caught.value.code == ExitCode.ENGINE
    assert "BUILDER_STORE" in caught.value.next
    assert (blobs(store), temporary(store)) == (set(), [])
    store.put(b"there is room again")


def test_a_full_disk_keeps_the_old_record(small_disk: Path) -> None:
    store = Store(small_disk)
    store.record_image("name", {"digest": "old"})
    with fails(EngineError, "disk-full"):
        store.record_image("name", {"digest": "x" * 3_000_000})
    assert store.image("name") == {"digest": "old"}
    assert temporary(store) == []


def test_a_read_only_store_can_be_read_but_not_written(small_disk: Path, request: pytest.FixtureRequest) -> None:
    store = Store(small_disk)
    made = record(store)
    store.record_layer(KEY, made)
    folder = small_disk.with_name("read-only")
    folder.mkdir()
    subprocess.run(["mount", "--bind", small_disk, folder], check=True)
    request.addfinalizer(lambda: subprocess.run(["umount", "--lazy", folder], check=True))
    subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
    store = Store(folder)
    assert store.layer(KEY) == made
    assert store.read(made.digest) == b"layer"
    for write in (store.writer, store.scratch, lambda: store.put(b"new"), lambda: store.record_image("a", {})):
        with fails(EngineError, "disk-write-failed") as caught:
            write()
        assert "BUILDER_STORE" in caught.value.next
