"""The store: content-addressed blobs on disk, and the index "layer key → layer".

Layout below the root:

    CACHEDIR.TAG            marks the folder as a cache (bford.info/cachedir), so that backups skip it
    blobs/sha256/HEX        inputs, layer blobs, configs and manifests alike, each named by its own hash
    layers/KEY.json         what a layer key was built to
    images/NAME.json        the last image of a recipe
    locks/KEY               held while a layer is being made
    locks/PROCESS           held while a process uses the store; lists what it relies upon
    locks/gc                held while something is claimed (shared) or removed (exclusive)
    run/                    images unpacked for the checks that run them
    tmp/                    files being written; a name carries the process that writes it

A blob is visible only once it is complete: it is written below tmp/ and renamed. A process that died leaves files
below tmp/ only, and the next one that opens the store removes them. What a process looks for it claims first, in its
own lock file; `builder gc` leaves alone what a living process has claimed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import IO, Any

from builder.digest import Digest
from builder.errors import EngineError, InvalidError, PinError, UsageError
from builder.jsontext import parse_json
from builder.store.blobs import Blobs, chunks_of, disk_error, hash_of, remove

_OWNER = re.compile(r"[0-9]+\.[0-9a-f]{8}")
_CLAIMS = "claims"
"""First line of a process's lock file. Programs of before it was written claim nothing, and rely on everything."""

_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# This folder is the store of `builder`; it can be rebuilt.\n"


@dataclass(frozen=True)
class LayerRecord:
    """A built layer. digest and size are of the compressed blob, diff_id and tar_size of the tar inside it (bytes).

    listing: digest of a blob with one JSON line `[path, kind, mode, size, link]` for each entry, in the tar's order.
    receipt: digest of a blob that says what the layer was made from (`builder/attest/receipt.py`); None when not known.
    """

    digest: Digest
    size: int
    diff_id: Digest
    tar_size: int
    media_type: str
    entries: int
    listing: Digest
    receipt: Digest | None = None


def _check(key: str, data: dict[str, Any]) -> str:
    """What finds a record that was damaged, or belongs to another key: unlike a blob, its name does not tell."""
    return hashlib.sha256(json.dumps([key, data], sort_keys=True).encode()).hexdigest()


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


class Store(Blobs):
    """Blobs and the layer index below one folder. Safe to use from several processes and threads at once."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, root / "tmp")
        self._alive: IO[str] | None = None
        self._claimed: set[str] = set()
        self._claiming = Lock()
        self._sole = False
        try:
            (self.root / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
            for folder in ("tmp", "layers", "images", "locks"):
                (self.root / folder).mkdir(exist_ok=True)
            tag = self.root / "CACHEDIR.TAG"
            if not tag.exists():
                tag.write_text(_TAG)
        except OSError as error:
            raise disk_error(error, self.root) from error
        # A store that cannot be written can still be read.
        with contextlib.suppress(OSError):
            self._alive = _hold(self.root / "locks" / self.owner)
            self._sweep()

    @property
    def unpacked(self) -> Path:
        """Where images are unpacked that are run without a daemon; processes that use it claim "run"."""
        return self.root / "run"

    def claim(self, *names: str) -> None:
        """Say that this process relies on these: digests of blobs, and paths below the root."""
        with self._claiming:
            new = [name for name in names if name not in self._claimed]
            if not new or self._alive is None or self._sole:
                return
            with contextlib.suppress(OSError), (self.root / "locks" / "gc").open("a") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                self._alive.writelines(f"{name}\n" for name in new)
                self._alive.flush()
                self._claimed.update(new)

    @contextlib.contextmanager
    def sole(self) -> Iterator[set[str] | None]:
        """While nothing can be claimed: what other living processes have claimed; None when there are no others.

        Raises EngineError when one of them does not say what it relies upon.
        """
        try:
            file = (self.root / "locks" / "gc").open("a")
        except OSError as error:
            raise disk_error(error, self.root) from error
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._sole = True
            try:
                yield self._claims_of_others()
            finally:
                self._sole = False

    def _claims_of_others(self) -> set[str] | None:
        found: set[str] = set()
        for path in (self.root / "locks").iterdir():
            if path.name == self.owner or not _OWNER.fullmatch(path.name):
                continue
            if (lines := _claims(path)) is None:
                continue
            if _CLAIMS not in lines[:1]:
                raise EngineError(
                    "another process uses this store and does not say what of it",
                    where=str(path),
                    cause="it is an older version of builder",
                    next="run builder gc again when that has ended",
                )
            found.update(lines)
        return found or None

    def has(self, digest: Digest) -> bool:
        """Whether the blob is there; if so it stays."""
        self.claim(digest)
        return super().has(digest)

    def taken(self, digest: Digest) -> None:
        """Called before a blob appears."""
        self.claim(digest)

    def put(self, data: bytes) -> Digest:
        """Store a small blob; returns its digest."""
        digest = Digest.of(data)
        if not self.has(digest):
            with self.writer() as writer:
                writer.write(data)
                writer.commit(digest)
        return digest

    def read(self, digest: Digest) -> bytes:
        """A small blob, verified. Raises PinError when it is damaged (the blob is removed) or absent."""
        try:
            data = self.blob(digest).read_bytes()
        except FileNotFoundError:
            raise PinError(f"{digest} is not in the store", where=str(self.root)) from None
        if (actual := Digest.of(data)) != digest:
            raise self._damaged(digest, actual)
        return data

    def verify(self, digest: Digest) -> None:
        """Read the whole blob and compare its hash. A damaged blob is removed. Raises PinError."""
        try:
            actual = hash_of(self.blob(digest))
        except FileNotFoundError:
            raise PinError(f"{digest} is not in the store", where=str(self.root)) from None
        if actual != digest:
            raise self._damaged(digest, actual)

    def chunks(self, digest: Digest) -> Iterator[bytes]:
        """A blob, in chunks of 1 MiB. Raises PinError when it is damaged, at its end; it is removed then."""
        seen = hashlib.sha256()
        for chunk in chunks_of(self.blob(digest)):
            seen.update(chunk)
            yield chunk
        if (actual := Digest.from_hex(seen.hexdigest())) != digest:
            raise self._damaged(digest, actual)

    def _damaged(self, digest: Digest, actual: Digest) -> PinError:
        """The error for a blob with wrong bytes, which is removed."""
        self.discard(digest)
        return PinError(
            f"{digest} is damaged in the store",
            where=str(self.root),
            cause=f"its bytes hash to {actual}",
            next="run the command again: it is fetched or made anew",
        )

    def discard(self, digest: Digest) -> None:
        """Remove a blob."""
        self.blob(digest).unlink(missing_ok=True)

    def layer(self, key: str) -> LayerRecord | None:
        """What this layer key was built to, if that and its blobs are here; then they stay."""
        self.claim(f"layers/{_hex(key)}.json")
        data = self._json(self.root / "layers" / f"{_hex(key)}.json")
        if data is None:
            return None
        if data.pop("check", None) != _check(key, data):
            return None
        try:
            digests = {name: Digest(data[name]) for name in ("digest", "diff_id", "listing")}
            receipt = Digest(data["receipt"]) if data["receipt"] is not None else None
            record = LayerRecord(**{**data, **digests, "receipt": receipt})
        except (KeyError, TypeError, ValueError):
            return None
        self.claim(record.digest)
        try:
            whole = self.blob(record.digest).stat().st_size == record.size and self.has(record.listing)
            whole = whole and (record.receipt is None or self.has(record.receipt))
        except FileNotFoundError:
            return None
        return record if whole else None

    def record_layer(self, key: str, record: LayerRecord) -> None:
        """Remember what a layer key was built to."""
        self.claim(f"layers/{_hex(key)}.json")
        data = asdict(record)
        self._write_json(self.root / "layers" / f"{_hex(key)}.json", data | {"check": _check(key, data)})

    def image(self, name: str) -> dict[str, Any] | None:
        """The last build record of a recipe."""
        self.claim(f"images/{name}.json")
        return self._json(self.root / "images" / f"{name}.json")

    def record_image(self, name: str, data: dict[str, Any]) -> None:
        """Remember a build record; its time says when the image was last used."""
        self.claim(f"images/{name}.json")
        self._write_json(self.root / "images" / f"{name}.json", data)

    def touch_image(self, name: str) -> None:
        """Note that an image was used now."""
        with contextlib.suppress(OSError):
            os.utime(self.root / "images" / f"{name}.json")

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
            data = parse_json(path.read_bytes())
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
            if owner != self.owner and _OWNER.fullmatch(owner):
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
    """A file that is locked until this process ends, and holds the first line of its claims."""
    while True:
        file = path.open("w")
        # Another process may have taken it for an old one and removed it in between.
        if _lock(file) and os.fstat(file.fileno()).st_nlink:
            file.write(f"{_CLAIMS}\n")
            file.flush()
            return file
        file.close()


def _claims(path: Path) -> list[str] | None:
    """The lines of a process's lock file; None when the process has ended."""
    for _ in range(20):
        try:
            with path.open("r+") as file:
                if _lock(file):
                    return None
                if lines := file.read().splitlines():
                    return lines
        except FileNotFoundError:
            return None
        time.sleep(0.05)  # It has just begun.
    return []


def _hex(key: str) -> str:
    value = key.removeprefix("sha256:")
    if not value.isalnum():
        raise InvalidError(f"not a layer key: {key}")
    return value
