"""Folders of blobs: reading, writing and hard-linking a blob under its digest; errors of a full or read-only disk."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeGuard, TypeVar

from builder.digest import Digest
from builder.errors import EngineError, OtherSourceError, PinError
from builder.regular import NotRegularError, is_regular, open_regular
from builder.store.removal import remove

CHUNK = 1 << 20
_Result = TypeVar("_Result")


class Blobs:
    """Blobs below `root`/blobs/sha256, as in an OCI layout. A blob is visible only when it is complete.

    tmp: the folder of blobs that are being written. owner: the prefix of the names of this process's temporary files.
    """

    place = "BUILDER_STORE"
    """The variable or option that names the folder, for error messages."""

    def __init__(self, root: Path, tmp: Path) -> None:
        self.root = root.absolute()
        self.tmp = tmp.absolute()
        self.owner = f"{os.getpid()}.{os.urandom(4).hex()}"

    def blob(self, digest: Digest) -> Path:
        """The path of the blob, which may not exist."""
        return self.root / digest.path

    def has(self, digest: Digest) -> bool:
        """Whether the blob exists. A link, pipe or folder under its name counts as absent."""
        return is_regular(self.blob(digest))

    def before_commit(self, digest: Digest) -> None:
        """Called before a new blob becomes visible."""

    def writer(self) -> BlobWriter:
        """A new blob to write; use it in a `with` statement."""
        try:
            return BlobWriter(self)
        except OSError as error:
            raise disk_error(error, self.root, self.place) from error

    def fill(self, digest: Digest, chunks: Callable[[], Iterator[bytes]]) -> None:
        """Write a blob, whole or not at all. chunks: called again after OtherSourceError. Raises PinError."""

        def write() -> None:
            with self.writer() as writer:
                for chunk in chunks():
                    writer.write(chunk)
                writer.commit(digest)

        rereading(write)

    def add_file(self, source: Path, digest: Digest, watch: Callable[[int], None] = lambda size: None) -> None:
        """Add a file as this blob: a hard link where possible, else a copy.

        Its bytes are hashed first. watch: receives the number of bytes read; it may raise. Raises PinError when the
        bytes do not match `digest`, and OSError when the file cannot be read.
        """
        target = self.tmp / f"{self.owner}-{os.urandom(6).hex()}"
        try:
            # The file itself: a symlink to it could point elsewhere later.
            target.hardlink_to(os.path.realpath(source))
            if not _is_ours(target):
                target.unlink()
                raise PermissionError
        except OSError:
            with open_regular(source, follow=True) as file, self.writer() as writer:
                while chunk := file.read(CHUNK):
                    writer.write(chunk)
                    watch(writer.size)
                writer.commit(digest)
            return
        try:
            actual = hash_of(target, watch)
            if actual != digest:
                raise _mismatch(actual, digest)
            self.before_commit(digest)
            put_in_place(target, self.blob(digest))
        finally:
            target.unlink(missing_ok=True)


def _is_ours(path: Path) -> bool:
    """Whether nobody else may write to a file, and so to a blob that is the same file."""
    found = path.lstat()
    return found.st_uid == os.geteuid() and not found.st_mode & stat.S_IWOTH


def rereading(read: Callable[[], _Result]) -> _Result:
    """The result of `read`, which is called again after OtherSourceError."""
    while True:
        with contextlib.suppress(OtherSourceError):
            return read()


def chunks_of(path: Path) -> Iterator[bytes]:
    """A regular file's bytes, 1 MiB at a time. Raises OSError."""
    with open_regular(path) as file:
        while chunk := file.read(CHUNK):
            yield chunk


def hash_of(path: Path, watch: Callable[[int], None] = lambda size: None) -> Digest:
    """The digest of a file. watch: receives the number of bytes read; it may raise."""
    found, size = hashlib.sha256(), 0
    for chunk in chunks_of(path):
        found.update(chunk)
        size += len(chunk)
        watch(size)
    return Digest.from_hex(found.hexdigest())


class BlobWriter:
    """Writes one blob: hashes it meanwhile. It is visible after `commit`; without one, `__exit__` removes it."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        descriptor, name = tempfile.mkstemp(prefix=f"{blobs.owner}-", dir=blobs.tmp)
        self._path = Path(name)
        self._file = os.fdopen(descriptor, "wb", buffering=1 << 20)
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        """Append `data`. Raises EngineError when the disk is full."""
        try:
            self._file.write(data)
        except OSError as error:
            raise disk_error(error, self._blobs.root, self._blobs.place) from error
        self._hash.update(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Write buffered bytes. Raises EngineError when the disk is full."""
        try:
            self._file.flush()
        except OSError as error:
            raise disk_error(error, self._blobs.root, self._blobs.place) from error

    def commit(self, expected: Digest | None = None) -> Digest:
        """Make the blob visible and return its digest. Raises PinError when the digest is not `expected`."""
        digest = Digest.from_hex(self._hash.hexdigest())
        if expected is not None and digest != expected:
            self.abandon()
            raise _mismatch(digest, expected)
        target = self._blobs.blob(digest)
        try:
            self._file.flush()
            self._file.close()
            self._path.chmod(0o444)
            self._blobs.before_commit(digest)
            put_in_place(self._path, target)
        except OSError as error:
            raise disk_error(error, self._blobs.root, self._blobs.place) from error
        return digest

    def abandon(self) -> None:
        """Discard what was written."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> BlobWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()


def _mismatch(actual: Digest, expected: Digest) -> PinError:
    return PinError(
        f"got {actual}, expected {expected}", id="blob-mismatch", cause="the content differs from what is locked"
    )


def put_in_place(file: Path, target: Path) -> None:
    """Rename a complete file to its name, over whatever has that name. Raises OSError."""
    try:
        file.replace(target)
    except IsADirectoryError:
        remove(target)
        file.replace(target)


def is_full(error: BaseException) -> TypeGuard[OSError]:
    """Whether an error means that the disk or the user's quota is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def disk_error(error: OSError, where: Path, place: str = "BUILDER_STORE") -> EngineError:
    """The error for an OSError of the store, or of the folder that `place` (a variable or option) names."""
    if isinstance(error, NotRegularError):
        return EngineError(
            "is a link, a pipe or a folder where a file belongs",
            id="store-file-not-regular",
            where=str(error.filename),
            cause="something other than builder changed the folder",
            next="remove it and run the command again",
        )
    if is_full(error):
        return EngineError(
            "no space left",
            id="disk-full",
            where=str(where),
            next=f"free some space, or point {place} at a larger disk",
        )
    return EngineError(
        f"cannot write: {error.strerror or error}",
        id="disk-write-failed",
        where=str(where),
        next=f"point {place} at a folder you can write",
    )
