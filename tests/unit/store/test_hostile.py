"""A store that holds links, pipes and folders in place of files: nothing waits, nothing outside is written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from builder.digest import Digest
from builder.errors import BuilderError, EngineError
from builder.smoke.results import read_results, results_folder
from builder.store.gc import collect
from builder.store.retention import Policy
from builder.store.store import Store
from tests.support.errors import fails
from tests.support.hostile import KINDS, PLAIN, Outside, limit
from tests.support.storefiles import KEY, receipt, record

BLOB = Digest.of(b"layer")
ENDED = "1.0123abcd"
"""The name of a process that ended."""


def build(root: Path) -> None:
    with Store(root).exclusive(KEY):
        pass


def put(root: Path) -> None:
    assert Store(root).put(b"layer") == BLOB
    assert Store(root).read(BLOB) == b"layer"


def write(root: Path) -> None:
    Store(root).record_image(KEY, {})
    assert Store(root).image(KEY) == {}


USES: tuple[Callable[[Path], object], ...] = (
    build,
    put,
    write,
    lambda root: Store(root).layer(KEY),
    lambda root: Store(root).image(KEY),
    lambda root: Store(root).read(BLOB),
    lambda root: Store(root).verify(BLOB),
    lambda root: list(Store(root).chunks(BLOB)),
    lambda root: collect(Store(root), Policy(older_than=0), dry_run=False),
    lambda root: read_results(results_folder(root), BLOB),
)


PLACES = (
    "CACHEDIR.TAG",
    "locks/gc",
    f"locks/{KEY}",
    f"locks/{ENDED}",
    f"tmp/{ENDED}-x",
    f"layers/{KEY}.json",
    f"images/{KEY}.json",
    f"results/{BLOB.tag}.json",
    BLOB.path,
    Digest.of(b"listing").path,
    Digest.of(receipt(BLOB)).path,
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_nothing_waits_and_nothing_outside_is_written(tmp_path: Path, place: str, kind: str) -> None:
    root, outside = tmp_path / "store", Outside(tmp_path)
    for use in USES:
        shutil.rmtree(root, ignore_errors=True)
        store = Store(root)
        store.record_layer(KEY, record(store))
        store.record_image(KEY, {"digest": BLOB})
        (root / "results").mkdir()
        outside.put(kind, root / place)
        with limit(), suppress(BuilderError):
            use(root)
        outside.assert_unchanged()


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_of_a_lock_names_the_file(tmp_path: Path, kind: str) -> None:
    store = Store(tmp_path / "store")
    Outside(tmp_path).put(kind, store.root / "locks" / KEY)
    with limit(), fails(EngineError, "store-file-not-regular") as caught, store.exclusive(KEY):
        pass
    assert caught.value.where == str(store.root / "locks" / KEY)


@pytest.mark.parametrize("place", ["blobs", "blobs/sha256", "tmp", "layers", "images", "locks", "run", "results"])
def test_a_link_in_place_of_a_folder_is_refused(tmp_path: Path, place: str) -> None:
    """`gc` would remove the files of the folder that it leads to."""
    store, outside = Store(tmp_path / "store"), tmp_path / "outside"
    (outside / "sha256").mkdir(parents=True)
    files = [outside / "sha256" / "mine", outside / f"{ENDED}-mine"]
    for file in files:
        file.write_text("mine")
    shutil.rmtree(store.root / place, ignore_errors=True)
    (store.root / place).symlink_to(outside)
    with fails(EngineError, "store-file-not-regular") as caught:
        collect(Store(store.root), Policy(older_than=0), dry_run=False)
    assert caught.value.where == str(store.root / place) and all(file.is_file() for file in files)


@pytest.mark.parametrize(("root", "before", "after"), [(0o755, 0o755, 0o700), (0o775, 0o775, 0o770), (0o755, 0, 0o700)])
def test_only_those_who_may_write_to_a_store_can_hold_its_locks(
    tmp_path: Path, root: int, before: int, after: int
) -> None:
    """flock(2) needs the right to read alone, and a build would wait for as long as somebody holds its lock."""
    folder = tmp_path / "store"
    if before:
        (folder / "locks").mkdir(parents=True)
        (folder / "locks").chmod(before)
        folder.chmod(root)
    assert Store(folder).claims is not None
    assert (folder / "locks").stat().st_mode & 0o777 == after


@pytest.mark.parametrize("kind", ["own", "writable by all", "of another user"])
def test_a_file_that_others_can_write_to_is_copied(tmp_path: Path, kind: str) -> None:
    """A blob that is the same file as one of a mirror would change with it, after it was compared with its digest."""
    if kind == "of another user" and os.geteuid() != 0:
        pytest.skip("only root can make such a file")
    file = tmp_path / "file"
    file.write_bytes(b"layer")
    file.chmod(0o666 if kind == "writable by all" else 0o644)
    if kind == "of another user":
        os.chown(file, PLAIN, PLAIN)
    store = Store(tmp_path / "store")
    store.add_file(file, BLOB)
    assert store.blob(BLOB).samefile(file) == (kind == "own")
    assert store.read(BLOB) == b"layer" and list(store.tmp.iterdir()) == []
