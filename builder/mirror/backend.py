"""Where a mirror is: a folder (an OCI layout) or a repository of a registry. Both give blobs by hash and take them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from builder.errors import EngineError, PinError, UsageError
from builder.mirror.artifact import ARTIFACT, EMPTY, Artifact
from builder.model.reference import Reference, is_registry
from builder.oci.layout import begin, list_entry, prepare, read_index, read_json
from builder.oci.manifest import OCI_MANIFEST, sha256
from builder.store.blobs import CHUNK, Blobs, BlobWriter, disk_error, hash_of, remove

if TYPE_CHECKING:
    from builder.registry.client import Registry

_PARTIAL = ".partial"


class Place(Protocol):
    """Blobs by hash. name: as the user knows it."""

    name: str

    def has(self, digest: str, size: int) -> bool:
        """Whether a blob of this size is there under this name. Raises NetworkError."""

    def read(self, digest: str, size: int | None = None) -> Iterator[bytes]:
        """A blob's chunks, which the reader verifies. Raises PinError when it is absent, NetworkError, OSError."""

    def file(self, digest: str) -> Path | None:
        """The file of a blob that is there, where it is one."""

    def give(self, digest: str, size: int, chunks: Callable[[], Iterator[bytes]]) -> None:
        """Take a blob; chunks gives its bytes from the start. Raises PinError, NetworkError, EngineError."""

    def take(self, file: Path, digest: str, size: int, watch: Callable[[int], None]) -> None:
        """Take a blob from a file. watch: told how many bytes were read; it may raise. Raises as `give` does."""

    def sound(self, digest: str, size: int) -> bool:
        """Read a blob; whether its bytes hash to its name. Raises NetworkError."""

    def discard(self, digest: str) -> None:
        """Remove a blob with wrong bytes, where that can be done."""

    def publish(self, artifact: Artifact) -> bool:
        """List an artifact whose blobs are all there; False when it was listed already."""

    def writing(self) -> contextlib.AbstractContextManager[None]:
        """What must be entered before anything is written."""


def place_of(text: str) -> Place:
    """A place as people write it: DIR, oci:DIR or REGISTRY/REPOSITORY. Raises UsageError.

    It is a registry when its first part can be nothing else, by docker's rule; ./DIR is a folder in any case.
    """
    if text.startswith("oci:"):
        return FolderPlace(Path(text.removeprefix("oci:")))
    first, slash, _ = text.partition("/")
    is_host = slash and first not in (".", "..", "~") and (any(mark in first for mark in ".:[") or first == "localhost")
    if is_host and is_registry(first.lower()):
        return RegistryPlace(text)
    if not text:
        raise UsageError("a mirror without a name", next="name a folder or REGISTRY/REPOSITORY")
    return FolderPlace(Path(text))


class FolderPlace(Blobs):
    """An OCI layout. One process may write to it at a time; others may read meanwhile."""

    place = "DIR"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder.expanduser(), folder.expanduser() / _PARTIAL)
        self.name = str(folder)
        self._sealed: OSError | None = None
        self._discarded: set[str] = set()

    def writer(self) -> BlobWriter:
        """A new blob to write. Raises EngineError for a folder that can only be read."""
        if self._sealed is not None:
            raise disk_error(self._sealed, self.root, self.place) from self._sealed
        return super().writer()

    def has(self, digest: str, size: int | None = None) -> bool:
        """Whether a blob of this size is there. Its bytes are not read."""
        path = self.file(digest)
        return path is not None and (size is None or path.stat().st_size == size)

    def read(self, digest: str, size: int | None = None) -> Iterator[bytes]:
        """A blob's chunks, not verified. Raises PinError when it is absent, OSError."""
        path = self.file(digest)
        if path is None:
            raise PinError(f"{digest} is not there", where=self.name)
        return _chunks(path.open("rb", buffering=0))

    def file(self, digest: str) -> Path | None:
        """The blob's file. Anything else of its name is as good as nothing: opening a pipe would wait for ever."""
        path = self.blob(digest)
        return path if digest not in self._discarded and path.is_file() else None

    def sound(self, digest: str, size: int) -> bool:
        """Whether the bytes of a blob hash to its name."""
        try:
            return hash_of(self.blob(digest)) == digest
        except OSError:
            return False

    def give(self, digest: str, size: int, chunks: Callable[[], Iterator[bytes]]) -> None:
        """Write a blob, whole or not at all."""
        with self.writer() as writer:
            for chunk in chunks():
                writer.write(chunk)
            writer.commit(digest)

    def take(self, file: Path, digest: str, size: int, watch: Callable[[int], None]) -> None:
        """Link or copy a file, whose bytes are hashed."""
        self.adopt(file, digest, watch)

    def discard(self, digest: str) -> None:
        """Remove a blob; where it cannot be, it counts as absent."""
        try:
            remove(self.blob(digest))
        except OSError:
            self._discarded.add(digest)

    def publish(self, artifact: Artifact) -> bool:
        """List the artifact in index.json, in the place of an older one of its tag."""
        for data in (EMPTY, artifact.manifest):
            if not self.has(sha256(data), len(data)):
                self.give(sha256(data), len(data), lambda data=data: iter((data,)))  # type: ignore[misc]
        if any(item.get("digest") == artifact.digest and _tag(item) == artifact.tag for item in read_index(self.root)):
            return False
        try:
            list_entry(self.root, artifact.digest, len(artifact.manifest), artifact.tag, artifactType=ARTIFACT)
        except OSError as error:
            raise disk_error(error, self.root, self.place) from error
        return True

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Make the folder, be the only writer, and leave nothing half-written behind, nor what another left.

        A mirror on a medium that can only be read may be complete all the same, and be verified.
        """
        prepare(self.root, "builder mirror DIR")
        handle = os.open(self.root, os.O_RDONLY)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise EngineError(
                    "another builder writes to this mirror", where=self.name, next="run again when it has ended"
                ) from None
            except OSError:
                pass  # a file system without locks
            try:
                remove(self.tmp)
                self.tmp.mkdir()
                (self.root / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
                begin(self.root)  # What an interrupted first run leaves must be gone on with, not refused.
            except OSError as error:
                if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM) or not is_mirror(self.root):
                    raise disk_error(error, self.root, self.place) from error
                self._sealed = error
            try:
                yield
            finally:
                with contextlib.suppress(OSError):
                    remove(self.tmp)
        finally:
            os.close(handle)


class RegistryPlace:
    """A repository. Its tags are the artifacts'."""

    def __init__(self, text: str, client: Registry | None = None) -> None:
        self._at = Reference.parse(text)
        if self._at.tag or self._at.digest:
            raise UsageError(
                f"{text!r} names one image", cause="a mirror is a whole repository", next="leave out tag and digest"
            )
        self.name = f"{self._at.registry}/{self._at.repository}"
        self._client = client

    @property
    def client(self) -> Registry:
        """Made when it is first needed: that reads configuration and logins."""
        if self._client is None:
            from builder.registry.client import Registry

            self._client = Registry()
        return self._client

    def has(self, digest: str, size: int) -> bool:
        """Ask the registry."""
        return self.client.has_blob(self._at, digest)

    def read(self, digest: str, size: int | None = None) -> Iterator[bytes]:
        """From the registry or a mirror of it, verified."""
        return self.client.blob(self._at, digest, size)

    def file(self, digest: str) -> Path | None:
        """There is none."""
        return None

    def give(self, digest: str, size: int, chunks: Callable[[], Iterator[bytes]]) -> None:
        """Upload a blob."""
        self.client.upload(self._at, digest, size, chunks)

    def take(self, file: Path, digest: str, size: int, watch: Callable[[int], None]) -> None:
        """Upload a file."""

        def chunks() -> Iterator[bytes]:
            count = 0
            for chunk in _chunks(file.open("rb", buffering=0)):
                count += len(chunk)
                watch(count)
                yield chunk

        self.client.upload(self._at, digest, size, chunks)

    def sound(self, digest: str, size: int) -> bool:
        """Read it from the registry."""
        try:
            for _ in self.client.blob(self._at, digest, size):
                pass
        except PinError:
            return False
        return True

    def discard(self, digest: str) -> None:
        """A registry keeps what it has; an upload may mend it."""

    def publish(self, artifact: Artifact) -> bool:
        """Write the manifest to its tag, unless it is there."""
        target = Reference(self._at.registry, self._at.repository, artifact.tag)
        with contextlib.suppress(PinError):
            if self.client.manifest(target).digest == artifact.digest:
                return False
        if not self.client.has_blob(target, sha256(EMPTY)):
            self.client.upload(target, sha256(EMPTY), len(EMPTY), lambda: iter((EMPTY,)))
        self.client.put_manifest(target, artifact.manifest, OCI_MANIFEST)
        return True

    def writing(self) -> contextlib.AbstractContextManager[None]:
        """Registries take several writers."""
        return contextlib.nullcontext()


def read_small(place: Place, digest: str, limit: int) -> bytes:
    """A blob of at most `limit` bytes, verified. Raises PinError, NetworkError or OSError."""
    data = b""
    for chunk in place.read(digest):
        data += chunk
        if len(data) > limit:
            raise PinError(f"{digest} is too large", where=place.name)
    if sha256(data) != digest:
        raise PinError(f"got {sha256(data)}, expected {digest}", where=place.name, cause="it was changed there")
    return data


def is_mirror(folder: Path) -> bool:
    """Whether a folder can be read as a mirror."""
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
