"""The store: content-addressed blobs on disk, and the index "layer key → layer".

Layout below the root:

    CACHEDIR.TAG            marks the folder as a cache (bford.info/cachedir), so that backups skip it
    blobs/sha256/HEX        inputs, layer blobs, configs and manifests alike, each named by its own hash
    layers/KEY.json         what a layer key was built to
    images/NAME.json        the last image of a recipe
    locks/KEY               held while a layer is being made
    locks/PROCESS           held while a process uses the store
    tmp/                    files being written; a name carries the process that writes it

A blob is visible only once it is complete: it is written below tmp/ and renamed. A process that died leaves files
below tmp/ only, and the next one that opens the store removes them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, TypeGuard

from builder.errors import EngineError, InvalidError, PinError, UsageError

_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# This folder is the store of `builder`; it can be rebuilt.\n"


@dataclass(frozen=True)
class LayerRecord:
    """A built layer. digest and size are of the compressed blob, diff_id and tar_size of the tar inside it (bytes).

    listing: digest of a blob with one JSON line `[path, kind, mode, size, link]` for each entry, in the tar's order.
    """

    digest: str
    size: int
    diff_id: str
    tar_size: int
    media_type: str
    entries: int
    listing: str


class Writable(Protocol):
    """What a blob can be written through."""

    def write(self, data: bytes, /) -> Any: ...


def default_root() -> Path:
    """`BUILDER_STORE`, else `builder` below the user's cache directory (XDG_CACHE_HOME, else ~/.cache)."""
    if chosen := os.environ.get("BUILDER_STORE"):
        return Path(chosen)
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return Path(cache) / "builder"
    try:
        return Path.home() / ".cache" / "builder"
    except RuntimeError:
        raise UsageError("this user has no home directory", next="set BUILDER_STORE to a folder") from None


class BlobWriter:
    """Writes one blob: hashed while it is written, visible after `commit`, removed when left without it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        descriptor, name = tempfile.mkstemp(prefix=f"{store.owner}-", dir=store.tmp)
        self._path = Path(name)
        self._file = os.fdopen(descriptor, "wb", buffering=1 << 20)
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        """Append `data`. Raises EngineError when the disk is full."""
        try:
            self._file.write(data)
        except OSError as error:
            raise disk_error(error, self._store.root) from error
        self._hash.update(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Hand everything to the disk. Raises EngineError when that is full."""
        try:
            self._file.flush()
        except OSError as error:
            raise disk_error(error, self._store.root) from error

    def commit(self, expected: str | None = None) -> str:
        """Make the blob visible and return its digest. Raises PinError when it is not the `expected` one."""
        digest = f"sha256:{self._hash.hexdigest()}"
        if expected is not None and digest != expected:
            self.abandon()
            raise PinError(f"got {digest}, expected {expected}", cause="the content is not what was locked")
        target = self._store.blob(digest)
        try:
            self._file.flush()
            self._file.close()
            self._path.chmod(0o444)
            self._path.replace(target)
        except OSError as error:
            raise disk_error(error, self._store.root) from error
        return digest

    def abandon(self) -> None:
        """Forget what was written."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> BlobWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()


class Store:
    """Blobs and the layer index below one folder. Safe to use from several processes and threads at once."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.tmp = self.root / "tmp"
        try:
            (self.root / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
            for folder in ("tmp", "layers", "images", "locks"):
                (self.root / folder).mkdir(exist_ok=True)
            tag = self.root / "CACHEDIR.TAG"
            if not tag.exists():
                tag.write_text(_TAG)
        except OSError as error:
            raise disk_error(error, self.root) from error
        self.owner = f"{os.getpid()}.{os.urandom(4).hex()}"
        # A store that cannot be written can still be read.
        with contextlib.suppress(OSError):
            self._alive = _hold(self.root / "locks" / self.owner)
            self._sweep()

    def blob(self, digest: str) -> Path:
        """Where the blob of this digest is, or would be."""
        algorithm, _, value = digest.partition(":")
        return self.root / "blobs" / algorithm / value

    def has(self, digest: str) -> bool:
        """Whether the blob is there."""
        return self.blob(digest).exists()

    def writer(self) -> BlobWriter:
        """A new blob to write; use it in a `with` statement."""
        try:
            return BlobWriter(self)
        except OSError as error:
            raise disk_error(error, self.root) from error

    def put(self, data: bytes) -> str:
        """Store a small blob; returns its digest."""
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if not self.has(digest):
            with self.writer() as writer:
                writer.write(data)
                writer.commit(digest)
        return digest

    def read(self, digest: str) -> bytes:
        """A small blob, verified. Raises PinError when it is damaged (the blob is removed) or absent."""
        try:
            data = self.blob(digest).read_bytes()
        except FileNotFoundError:
            raise PinError(f"{digest} is not in the store", where=str(self.root)) from None
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            self.discard(digest)
            raise PinError(
                f"{digest} is damaged in the store", where=str(self.root), next="run the command again: it is made anew"
            )
        return data

    def verify(self, digest: str) -> None:
        """Read the whole blob and compare its hash. A damaged blob is removed. Raises PinError."""
        seen = hashlib.sha256()
        try:
            with self.blob(digest).open("rb", buffering=0) as file:
                while chunk := file.read(1 << 20):
                    seen.update(chunk)
        except FileNotFoundError:
            raise PinError(f"{digest} is not in the store", where=str(self.root)) from None
        if f"sha256:{seen.hexdigest()}" != digest:
            self.discard(digest)
            raise PinError(
                f"{digest} is damaged in the store",
                where=str(self.root),
                cause=f"its bytes hash to sha256:{seen.hexdigest()}",
                next="run the command again: it is fetched anew",
            )

    def discard(self, digest: str) -> None:
        """Remove a blob."""
        self.blob(digest).unlink(missing_ok=True)

    def layer(self, key: str) -> LayerRecord | None:
        """What this layer key was built to, if that and its blob are here."""
        data = self._json(self.root / "layers" / f"{_hex(key)}.json")
        if data is None:
            return None
        try:
            record = LayerRecord(**data)
        except TypeError:
            return None
        if not all(type(getattr(record, item.name)).__name__ == item.type for item in fields(record)):
            return None
        try:
            whole = self.blob(record.digest).stat().st_size == record.size and self.has(record.listing)
        except FileNotFoundError:
            return None
        return record if whole else None

    def record_layer(self, key: str, record: LayerRecord) -> None:
        """Remember what a layer key was built to."""
        self._write_json(self.root / "layers" / f"{_hex(key)}.json", asdict(record))

    def image(self, name: str) -> dict[str, Any] | None:
        """The last build record of a recipe."""
        return self._json(self.root / "images" / f"{name}.json")

    def record_image(self, name: str, data: dict[str, Any]) -> None:
        """Remember a build record."""
        self._write_json(self.root / "images" / f"{name}.json", data)

    @contextlib.contextmanager
    def exclusive(self, key: str, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the lock of one layer key, so that two processes do not build it twice.

        waiting: called again and again while another holds it; it may raise.
        """
        try:
            file = (self.root / "locks" / _hex(key)).open("w")
        except OSError as error:
            raise disk_error(error, self.root) from error
        with file:
            while not _lock(file):
                waiting()
                time.sleep(0.05)
            yield

    def scratch(self) -> Path:
        """A new private folder below tmp/; the caller removes it. Raises EngineError."""
        try:
            return Path(tempfile.mkdtemp(prefix=f"{self.owner}-", dir=self.tmp))
        except OSError as error:
            raise disk_error(error, self.root) from error

    def _json(self, path: Path) -> dict[str, Any] | None:
        try:
            data = json.loads(path.read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return data if isinstance(data, dict) else None

    def _write_json(self, path: Path, data: dict[str, Any]) -> None:
        name = None
        try:
            descriptor, name = tempfile.mkstemp(prefix=f"{self.owner}-", dir=self.tmp)
            with os.fdopen(descriptor, "w") as file:
                json.dump(data, file, indent=1, sort_keys=True)
            Path(name).replace(path)
        except OSError as error:
            if name is not None:
                Path(name).unlink(missing_ok=True)
            raise disk_error(error, self.root) from error

    def _sweep(self) -> None:
        """Remove what processes that no longer run left below tmp/.

        A process holds its own lock for as long as it lives. Process ids alone would not do: those of another container
        that uses the same store mean nothing here.
        """
        left: dict[str, list[Path]] = {}
        for path in (*self.tmp.iterdir(), *(self.root / "locks").iterdir()):
            owner = path.name.partition("-")[0]
            if owner != self.owner and re.fullmatch(r"[0-9]+\.[0-9a-f]{8}", owner):
                left.setdefault(owner, []).append(path)
        for owner, paths in left.items():
            # Held while things are removed: a process that is just starting must not take a lock that is going.
            with (self.root / "locks" / owner).open("a") as file:
                if _lock(file):
                    for path in (*paths, self.root / "locks" / owner):
                        remove(path)


def _lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _hold(path: Path) -> IO[str]:
    """A file that is locked until this process ends."""
    while True:
        file = path.open("w")
        # Another process may have taken it for an old one and removed it in between.
        if _lock(file) and os.fstat(file.fileno()).st_nlink:
            return file
        file.close()


def remove(path: Path) -> None:
    """Remove a file or a whole tree, whatever its permissions."""
    import shutil

    if path.is_dir() and not path.is_symlink():
        for folder, _, _ in os.walk(path):
            with contextlib.suppress(OSError):
                Path(folder).chmod(0o700)
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def is_full(error: BaseException) -> TypeGuard[OSError]:
    """Whether an error says that the disk, or the user's share of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def disk_error(error: OSError, where: Path) -> EngineError:
    """An I/O error of the store, told so that the user can mend it."""
    if is_full(error):
        return EngineError(
            "no space left", where=str(where), next="free some space, or point BUILDER_STORE at a larger disk"
        )
    return EngineError(
        f"cannot write: {error.strerror or error}",
        where=str(where),
        next="point BUILDER_STORE at a folder you can write",
    )


def _hex(key: str) -> str:
    value = key.removeprefix("sha256:")
    if not value.isalnum():
        raise InvalidError(f"not a layer key: {key}")
    return value
