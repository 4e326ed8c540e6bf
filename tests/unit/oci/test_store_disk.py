"""The store on a disk that is full or cannot be written: told, and nothing half-written stays."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.errors import EngineError, ExitCode
from builder.oci.store import Store
from tests.unit.oci.test_store import KEY, blobs, record, temporary


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    path = tmp_path / "mounted"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


@pytest.mark.parametrize("last", [False, True], ids=["while writing", "at the end"])
def test_a_full_disk_is_told_and_leaves_nothing(mounted: Path, last: bool) -> None:
    store = Store(mounted)
    (mounted / "ballast").write_bytes(bytes(600_000))
    with pytest.raises(EngineError, match="no space left") as caught, store.writer() as writer:
        writer.write(b"x" * (500_000 if last else 5_000_000))
        writer.commit()
    assert caught.value.code == ExitCode.ENGINE
    assert "BUILDER_STORE" in caught.value.next
    assert (blobs(store), temporary(store)) == (set(), [])
    store.put(b"there is room again")


def test_a_full_disk_leaves_no_half_index(mounted: Path) -> None:
    store = Store(mounted)
    store.record_image("name", {"digest": "old"})
    with pytest.raises(EngineError, match="no space left"):
        store.record_image("name", {"digest": "x" * 3_000_000})
    assert store.image("name") == {"digest": "old"}
    assert temporary(store) == []


def test_a_read_only_store_can_be_read_but_not_written(mounted: Path, request: pytest.FixtureRequest) -> None:
    store = Store(mounted)
    made = record(store)
    store.record_layer(KEY, made)
    folder = mounted.with_name("read-only")
    folder.mkdir()
    subprocess.run(["mount", "--bind", mounted, folder], check=True)
    request.addfinalizer(lambda: subprocess.run(["umount", "--lazy", folder], check=True))
    subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
    store = Store(folder)
    assert store.layer(KEY) == made
    assert store.read(made.digest) == b"layer"
    for write in (store.writer, store.scratch, lambda: store.put(b"new"), lambda: store.record_image("a", {})):
        with pytest.raises(EngineError, match="cannot write: Read-only file system") as caught:
            write()
        assert "BUILDER_STORE" in caught.value.next
