"""The store: complete blobs only, concurrent writers, layer records, locks and the root folder."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from builder.digest import Digest
from builder.errors import EngineError, InvalidError, PinError, UsageError
from builder.model.canonical import fingerprint
from builder.store.store import Store, default_root
from tests.support.errors import fails
from tests.support.storefiles import KEY, blobs, receipt, record, temporary


def digest(data: bytes) -> str:
    return Digest.of(data)


def test_a_blob_is_named_by_its_hash_and_cannot_be_written(store: Store) -> None:
    with store.writer() as writer:
        writer.write(b"one ")
        writer.write(b"blob")
        assert blobs(store) == set()
        assert writer.commit() == digest(b"one blob")
    assert store.read(digest(b"one blob")) == b"one blob"
    assert store.blob(digest(b"one blob")).stat().st_mode & 0o777 == 0o444
    assert temporary(store) == []


def test_a_blob_with_another_hash_than_expected_is_not_kept(store: Store) -> None:
    with store.writer() as writer, fails(PinError, "blob-mismatch"):
        writer.write(b"evil")
        writer.commit(digest(b"good"))
    assert (blobs(store), temporary(store)) == (set(), [])


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_writer_without_commit_leaves_no_file(store: Store, error: type[BaseException]) -> None:
    with pytest.raises(error), store.writer() as writer:
        writer.write(b"x" * 5_000_000)
        raise error
    assert (blobs(store), temporary(store)) == (set(), [])


def test_concurrent_writers_of_the_same_and_different_blobs(store: Store) -> None:
    contents = [bytes([n % 7]) * 300_000 for n in range(40)]

    def put(data: bytes) -> str:
        with store.writer() as writer:
            for start in range(0, len(data), 1000):
                writer.write(data[start : start + 1000])
            return writer.commit()

    with ThreadPoolExecutor(8) as workers:
        assert list(workers.map(put, contents)) == [digest(data) for data in contents]
    assert blobs(store) == {digest(data)[7:] for data in contents}
    for name in blobs(store):
        store.verify(Digest.from_hex(name))
    assert temporary(store) == []


@pytest.mark.parametrize("damage", [b"", b"other", b"layer and more"])
def test_a_damaged_blob_is_an_error_and_removed(store: Store, damage: bytes) -> None:
    for check in (store.read, store.verify):
        name = store.put(b"layer")
        store.blob(name).chmod(0o644)
        store.blob(name).write_bytes(damage)
        with fails(PinError, "store-blob-damaged") as caught:
            check(name)
        assert "run the command again" in caught.value.next
        assert not store.has(name)
        with fails(PinError, "blob-not-in-store"):
            check(name)


def test_a_layer_needs_its_record_and_its_blobs(store: Store) -> None:
    made = record(store)
    assert store.layer(KEY) is None
    store.record_layer(KEY, made)
    assert store.layer(KEY) == Store(store.root).layer(KEY) == made
    store.discard(made.digest)
    assert store.layer(KEY) is None


def test_a_layer_without_listing_or_of_another_size_is_missing(store: Store) -> None:
    store.record_layer(KEY, record(store))
    store.discard(digest(b"listing"))
    assert store.layer(KEY) is None
    store.record_layer(KEY, record(store, size=6))
    assert store.layer(KEY) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"digest": 1}', '{"unknown": 1}', "\xff"])
def test_a_layer_with_a_damaged_record_is_missing(store: Store, text: str) -> None:
    store.record_layer(KEY, record(store))
    path = store.root / "layers" / f"{KEY}.json"
    for content in (text, path.read_text().replace('"entries": 1', '"entries": null')):
        path.write_bytes(content.encode("latin-1"))
        assert store.layer(KEY) is None


@pytest.mark.parametrize("lacking", ["check", "receipt", "listing", "digest"])
def test_a_record_that_lacks_a_member_is_missing(store: Store, lacking: str) -> None:
    store.record_layer(KEY, record(store))
    path = store.root / "layers" / f"{KEY}.json"
    data = json.loads(path.read_text())
    del data[lacking]
    path.write_text(json.dumps(data))
    assert store.layer(KEY) is None
    if lacking != "check":
        path.write_text(json.dumps(data | {"check": fingerprint([KEY, {k: data[k] for k in data if k != "check"}])}))
        assert store.layer(KEY) is None


FOREIGN = {
    "another key": receipt(digest(b"layer"), "b" * 64),
    "another layer": receipt(digest(b"other")),
    "no receipt": b"receipt",
    "a list": b"[]",
    "no inputs": json.dumps({"key": KEY, "digest": digest(b"layer")}).encode(),
}


@pytest.mark.parametrize("data", FOREIGN.values(), ids=list(FOREIGN))
def test_a_layer_with_the_receipt_of_another_layer_is_missing(store: Store, data: bytes) -> None:
    store.record_layer(KEY, replace(record(store), receipt=store.put(data)))
    assert store.layer(KEY) is None


def test_a_layer_with_a_damaged_receipt_is_missing(store: Store) -> None:
    made = record(store)
    store.record_layer(KEY, made)
    assert made.receipt is not None
    path = store.blob(made.receipt)
    path.chmod(0o644)
    path.write_bytes(bytes(path.stat().st_size))
    assert store.layer(KEY) is None


@pytest.mark.parametrize("damage", [b"", b"other"])
def test_a_small_blob_that_is_damaged_is_written_again(store: Store, damage: bytes) -> None:
    path = store.blob(store.put(b"layer"))
    path.chmod(0o644)
    path.write_bytes(damage)
    assert store.read(store.put(b"layer")) == b"layer"


@pytest.mark.parametrize("key", ["", "../x", "a/b", "sha256:../x"])
def test_invalid_layer_keys(store: Store, key: str) -> None:
    with pytest.raises(InvalidError):
        store.layer(key)


def test_one_process_at_a_time_builds_a_layer(store: Store) -> None:
    order: list[str] = []

    def make(name: str) -> None:
        with Store(store.root).exclusive(KEY):
            order.append(f"{name} in")
            time.sleep(0.1)
            order.append(f"{name} out")

    threads = [threading.Thread(target=make, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = order[0][0]
    other = {"a": "b", "b": "a"}[first]
    assert order == [f"{first} in", f"{first} out", f"{other} in", f"{other} out"]


def test_waiting_for_a_lock_can_be_cancelled(store: Store) -> None:
    def given_up() -> None:
        raise KeyboardInterrupt

    with store.exclusive(KEY):
        with store.exclusive("b" * 64):
            pass
        with pytest.raises(KeyboardInterrupt), store.exclusive(KEY, given_up):
            pytest.fail("two hold one lock")


def test_the_store_has_a_cachedir_tag(store: Store) -> None:
    assert (store.root / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55\n")


@pytest.mark.parametrize(
    ("environ", "root"),
    [
        ({"BUILDER_STORE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/builder"),
        ({"HOME": "/c"}, "/c/.cache/builder"),
    ],
)
def test_default_root(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], root: str) -> None:
    for name in ("BUILDER_STORE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert default_root() == Path(root)


def test_a_user_without_a_home_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("BUILDER_STORE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", none)
    with fails(UsageError, "home-missing") as caught:
        default_root()
    assert "BUILDER_STORE" in caught.value.next


def test_a_store_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with fails(EngineError, "disk-write-failed"):
        Store(tmp_path / "file/store")


def test_a_blob_in_chunks_is_hashed_again(store: Store) -> None:
    """So that no push or load passes on what was damaged, and the next build makes it anew."""
    digest = store.put(bytes(3 << 20))
    assert [len(chunk) for chunk in store.chunks(digest)] == [1 << 20] * 3
    path = store.blob(digest)
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(b"x")
    with fails(PinError, "store-blob-damaged"):
        list(store.chunks(digest))
    assert not store.has(digest)
