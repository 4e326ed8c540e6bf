"""FolderBackend: a mirror in a folder, an OCI layout with one writer at a time."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from builder.digest import Digest
from builder.errors import PinError
from builder.jsontext import read_json
from builder.mirror.artifact import ARTIFACT, EMPTY, Artifact
from builder.oci.layout import list_entry, locked, prepare, read_index
from builder.oci.manifest import verified
from builder.regular import open_regular
from builder.store.blobs import CHUNK, Blobs, BlobWriter, disk_error
from builder.store.removal import remove

_PARTIAL = ".partial"


class FolderBackend(Blobs):
    """An OCI layout. One process may write to it at a time; others may read meanwhile."""

    place = "DIR"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder.expanduser(), folder.expanduser() / _PARTIAL)
        self.name = str(folder)
        self._read_only: OSError | None = None
        self._discarded: set[str] = set()

    def writer(self) -> BlobWriter:
        """A new blob to write. Raises EngineError for a read-only folder."""
        if self._read_only is not None:
            raise disk_error(self._read_only, self.root, self.place) from self._read_only
        return super().writer()

    def has(self, digest: Digest, size: int | None = None) -> bool:
        """Whether a blob of this size is there. Its bytes are not read."""
        path = self.file(digest)
        return path is not None and (size is None or path.stat().st_size == size)

    def read(self, digest: Digest, size: int | None = None) -> Iterator[bytes]:
        """A blob's chunks, not verified. Raises PinError when it is absent, or of another size; OSError."""
        path = self.file(digest)
        # A file of no bytes on disk may have any size.
        if path is None or not self.has(digest, size):
            raise PinError(f"{digest} is not in the mirror", id="mirror-blob-missing", where=self.name)
        # Opened here and not with the first chunk: the caller handles an OSError of this call. A mirror may hold links.
        return _chunks(open_regular(path, follow=True))

    def file(self, digest: Digest) -> Path | None:
        """The blob's file. What is no regular file counts as absent: opening a pipe would wait for ever."""
        path = self.blob(digest)
        return path if digest not in self._discarded and path.is_file() else None

    def is_intact(self, digest: Digest, size: int) -> bool:
        """Whether the bytes of a blob match its digest."""
        try:
            for _ in verified(self.read(digest), digest):
                pass
        except (PinError, OSError):
            return False
        return True

    def put(self, digest: Digest, size: int, chunks: Callable[[], Iterator[bytes]]) -> None:
        """Write a blob, whole or not at all."""
        self.fill(digest, chunks)

    def put_file(self, file: Path, digest: Digest, size: int, watch: Callable[[int], None]) -> None:
        """Link or copy a file after hashing it."""
        self.add_file(file, digest, watch)

    def discard(self, digest: Digest) -> None:
        """Remove a blob; one that cannot be removed counts as absent."""
        try:
            remove(self.blob(digest))
        except OSError:
            self._discarded.add(digest)

    def publish(self, artifact: Artifact) -> bool:
        """List the artifact in index.json; it replaces an older artifact of the same tag."""
        for data in (EMPTY, artifact.manifest):
            if not self.has(Digest.of(data), len(data)):
                self.put(Digest.of(data), len(data), lambda data=data: iter((data,)))  # type: ignore[misc]
        if any(item.get("digest") == artifact.digest and _tag(item) == artifact.tag for item in read_index(self.root)):
            return False
        try:
            list_entry(self.root, artifact.digest, len(artifact.manifest), artifact.tag, artifactType=ARTIFACT)
        except OSError as error:
            raise disk_error(error, self.root, self.place) from error
        return True

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Create the folder, lock it, and remove partial files before and after, also those of an interrupted run.

        A mirror on a read-only medium is accepted: it may be complete, and it can be verified. Raises EngineError when
        another process holds the lock or the folder cannot be written, UsageError when it holds something else.
        """
        prepare(self.root, "builder mirror DIR")
        with locked(self.root, patience=0):
            try:
                remove(self.tmp)
                self.tmp.mkdir()
                (self.root / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
            except OSError as error:
                if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM) or not is_layout(self.root):
                    raise disk_error(error, self.root, self.place) from error
                self._read_only = error
            try:
                yield
            finally:
                with contextlib.suppress(OSError):
                    remove(self.tmp)


def is_layout(folder: Path) -> bool:
    """Whether a folder is an OCI layout, and so can be read as a mirror."""
    try:
        return isinstance(read_json(folder / "oci-layout"), dict)
    except (OSError, ValueError):
        return False


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while chunk := file.read(CHUNK):
            yield chunk


def _tag(item: dict[str, object]) -> object:
    annotations = item.get("annotations")
    return annotations.get("org.opencontainers.image.ref.name") if isinstance(annotations, dict) else None
