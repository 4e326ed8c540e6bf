"""The store: content-addressed blobs, records of layers and images, and the lock that lets one process build a layer.

Layout below the root:

    CACHEDIR.TAG            marks the folder as a cache (bford.info/cachedir), so that backups skip it
    blobs/sha256/HEX        inputs, layer blobs, configs and manifests alike, each named by its own hash
    layers/KEY.json         the record of the layer of a layer key
    images/NAME.json        the record of an image, by the key of its plan
    locks/KEY               held while a layer is being built
    locks/PROCESS           held while a process uses the store; lists its claims
    locks/gc                held while a process adds a claim (shared) or removes blobs (exclusive)
    run/                    images unpacked for the checks that run them
    tmp/                    files being written; a name starts with the process that writes it

A blob is visible only once it is complete: it is written below tmp/ and renamed. A dead process leaves files
below tmp/ only, and the next process that opens the store removes them. A process claims a blob or record before it
looks it up; `builder gc` keeps what a living process claims.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from builder.attest.receipt import is_receipt_of
from builder.digest import Digest
from builder.errors import PinError, UsageError
from builder.regular import NotRegularError, open_regular, read_regular
from builder.store.blobs import Blobs, chunks_of, disk_error, hash_of
from builder.store.claims import Claims, try_lock
from builder.store.records import (
    LayerRecord,
    checked_key,
    layer_data,
    layer_name,
    parse_layer,
    read_record,
    write_record,
)
from builder.store.removal import remove

SMALL = 64 << 20
"""Bytes; the limit of blobs that are read in one piece: manifests, configs and receipts."""

_FOLDERS = ("blobs", "blobs/sha256", "tmp", "layers", "images", "locks")
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# This folder is the store of `builder`; it can be rebuilt.\n"


def default_root() -> Path:
    """`BUILDER_STORE`, else `builder` below the user's cache directory (XDG_CACHE_HOME, else ~/.cache)."""
    if chosen := os.environ.get("BUILDER_STORE"):
        return Path(chosen)
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return Path(cache) / "builder"
    try:
        return Path.home() / ".cache" / "builder"
    except RuntimeError:
        raise UsageError(
            "this user has no home directory", id="home-missing", next="set BUILDER_STORE to a folder"
        ) from None


class Store(Blobs):
    """Blobs and records below one folder. Safe to use from several processes and threads at once."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, root / "tmp")
        self.claims = Claims(self.root, self.tmp, self.owner)
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            for folder in _FOLDERS:
                (self.root / folder).mkdir(exist_ok=True)
            self._check_folders()
            # "x" creates a new file only, also where a link of this name leads to no file.
            with contextlib.suppress(FileExistsError), (self.root / "CACHEDIR.TAG").open("x") as tag:
                tag.write(_TAG)
        except OSError as error:
            raise disk_error(error, self.root) from error
        # A read-only store can still be read.
        with contextlib.suppress(OSError):
            self.claims.start()

    @property
    def unpacked(self) -> Path:
        """The folder of images that are unpacked to run without a daemon; processes that use it claim "run"."""
        return self.root / "run"

    def _check_folders(self) -> None:
        """Raises NotRegularError for a link in place of a folder: `gc` would empty the folder that it leads to.

        Who may open a lock can hold it for ever, so only those may who may write to the store.
        """
        for name in (*_FOLDERS, "run", "results"):
            if (path := self.root / name).is_symlink():
                raise NotRegularError(errno.ELOOP, "a link", str(path))
        locks, root = self.root / "locks", self.root.stat().st_mode
        mode = locks.stat().st_mode & 0o7777
        writers = 0o700 | 0o070 * bool(root & 0o020) | 0o007 * bool(root & 0o002)
        if mode & 0o777 & ~writers:
            with contextlib.suppress(OSError):
                locks.chmod(mode & (0o7000 | writers))

    def claim(self, *names: str) -> None:
        """Claim digests of blobs and paths below the root, so that `builder gc` keeps them while this process lives."""
        self.claims.add(*names)

    def has(self, digest: Digest) -> bool:
        """Whether the blob exists; it is claimed."""
        self.claim(digest)
        return super().has(digest)

    def before_commit(self, digest: Digest) -> None:
        """Claim a blob before it appears."""
        self.claim(digest)

    def put(self, data: bytes) -> Digest:
        """Store a small blob, in place of a damaged one; returns its digest."""
        digest = Digest.of(data)
        self.claim(digest)
        try:
            self.read(digest)
        except PinError:  # absent or damaged
            with self.writer() as writer:
                writer.write(data)
                writer.commit(digest)
        return digest

    def read(self, digest: Digest) -> bytes:
        """A small blob, verified. Raises PinError when it is absent or damaged; a damaged blob is removed."""
        try:
            data = read_regular(self.blob(digest), SMALL)
        except (FileNotFoundError, NotRegularError):
            raise self._absent(digest) from None
        except OSError as error:
            if error.errno == errno.EFBIG:
                self.verify(digest)  # A blob that is too large to be the right one is damaged.
            raise
        if (actual := Digest.of(data)) != digest:
            raise self._damaged(digest, actual)
        return data

    def verify(self, digest: Digest) -> None:
        """Hash the whole blob. Raises PinError when it is absent or damaged; a damaged blob is removed."""
        try:
            actual = hash_of(self.blob(digest))
        except (FileNotFoundError, NotRegularError):
            raise self._absent(digest) from None
        if actual != digest:
            raise self._damaged(digest, actual)

    def chunks(self, digest: Digest) -> Iterator[bytes]:
        """A blob in chunks of 1 MiB. Raises PinError after the last chunk of a damaged blob, which is removed."""
        found = hashlib.sha256()
        try:
            for chunk in chunks_of(self.blob(digest)):
                found.update(chunk)
                yield chunk
        except (FileNotFoundError, NotRegularError):
            raise self._absent(digest) from None
        if (actual := Digest.from_hex(found.hexdigest())) != digest:
            raise self._damaged(digest, actual)

    def discard(self, digest: Digest) -> None:
        """Remove a blob."""
        remove(self.blob(digest))

    def layer(self, key: str) -> LayerRecord | None:
        """The layer of a layer key, when its record and all its blobs are in the store; they are claimed.

        The receipt is read and must name this key and this blob. Of the layer's blob only the size is compared.
        """
        name = layer_name(key)
        self.claim(f"layers/{name}")
        record = parse_layer(key, read_record(self.root / "layers" / name))
        if record is None or record.receipt is None:
            return None
        self.claim(record.digest)
        try:
            complete = self.blob(record.digest).lstat().st_size == record.size and self.has(record.listing)
        except FileNotFoundError:
            return None
        if not complete or not self.has(record.digest) or not self.has(record.receipt):
            return None
        try:
            receipt = self.read(record.receipt)
        except (PinError, OSError):
            return None
        return record if is_receipt_of(receipt, key, record.digest) else None

    def record_layer(self, key: str, record: LayerRecord) -> None:
        """Write the record of a layer key. Raises EngineError."""
        self._write(f"layers/{layer_name(key)}", layer_data(key, record))

    def seconds(self, key: str) -> float:
        """How many seconds it took to make the layer of a key here; 0 when not known."""
        record = parse_layer(key, read_record(self.root / "layers" / layer_name(key)))
        return record.seconds if record is not None else 0.0

    def built_at(self, key: str) -> float:
        """When the record of a layer key was written, in seconds since 1970. Raises OSError."""
        return (self.root / "layers" / layer_name(key)).lstat().st_mtime

    def image(self, name: str) -> dict[str, Any] | None:
        """The record of an image; None when there is none."""
        self.claim(f"images/{name}.json")
        return read_record(self.root / "images" / f"{name}.json")

    def record_image(self, name: str, data: dict[str, Any]) -> None:
        """Write the record of an image; the file's time is that of the last use. Raises EngineError."""
        self._write(f"images/{name}.json", data)

    def touch_image(self, name: str) -> None:
        """Set the time of an image's last use to now."""
        with contextlib.suppress(OSError):
            os.utime(self.root / "images" / f"{name}.json")

    @contextlib.contextmanager
    def exclusive(self, key: str, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the lock of one layer key, so that two processes do not build the same layer.

        waiting: called every 0.05 s while another process holds the lock; it may raise.
        """
        try:
            file = open_regular(self.root / "locks" / checked_key(key), "a+")
        except OSError as error:
            raise disk_error(error, self.root) from error
        with file:
            while not try_lock(file):
                waiting()
                time.sleep(0.05)
            yield

    def scratch(self) -> Path:
        """A new private folder below tmp/; the caller removes it. Raises EngineError."""
        try:
            return Path(tempfile.mkdtemp(prefix=f"{self.owner}-", dir=self.tmp))
        except OSError as error:
            raise disk_error(error, self.root) from error

    def _write(self, name: str, data: dict[str, Any]) -> None:
        self.claim(name)
        try:
            write_record(self.root / name, data, self.tmp, self.owner)
        except OSError as error:
            raise disk_error(error, self.root) from error

    def _absent(self, digest: Digest) -> PinError:
        return PinError(f"{digest} is not in the store", id="blob-not-in-store", where=str(self.root))

    def _damaged(self, digest: Digest, actual: Digest) -> PinError:
        """The error for a blob with wrong bytes, which is removed."""
        self.discard(digest)
        return PinError(
            f"{digest} is damaged in the store",
            id="store-blob-damaged",
            where=str(self.root),
            cause=f"its bytes hash to {actual}",
            next="run the command again: it fetches or builds the blob again",
        )
