"""Backend: the storage of a mirror, blobs by digest. Parses DIR, oci:DIR or REGISTRY/REPOSITORY into one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from builder.digest import Digest
from builder.errors import PinError, UsageError
from builder.mirror.artifact import Artifact
from builder.mirror.folder import FolderBackend
from builder.mirror.repository import RegistryBackend
from builder.model.reference import is_registry


class Backend(Protocol):
    """Blobs by digest. name: as the user gave it."""

    name: str

    def has(self, digest: Digest, size: int) -> bool:
        """Whether a blob of this digest and size is there. Its bytes are not read. Raises NetworkError."""

    def read(self, digest: Digest, size: int | None = None) -> Iterator[bytes]:
        """A blob's chunks, which the reader verifies. Raises PinError when it is absent, NetworkError, OSError."""

    def file(self, digest: Digest) -> Path | None:
        """The file of a blob; None when the blob is absent or the backend has no files."""

    def put(self, digest: Digest, size: int, chunks: Callable[[], Iterator[bytes]]) -> None:
        """Write a blob. chunks: returns its bytes from the start. Raises PinError, NetworkError, EngineError."""

    def put_file(self, file: Path, digest: Digest, size: int, watch: Callable[[int], None]) -> None:
        """Write a blob from a file. watch: receives the number of bytes read; may raise. Raises as `put` does."""

    def is_intact(self, digest: Digest, size: int) -> bool:
        """Whether the bytes of a blob match its digest; reads all of them. Raises NetworkError."""

    def discard(self, digest: Digest) -> None:
        """Remove a blob with wrong bytes, where that is possible."""

    def publish(self, artifact: Artifact) -> bool:
        """List an artifact whose blobs the mirror has; False when it is listed already."""

    def writing(self) -> contextlib.AbstractContextManager[None]:
        """A context that every write needs."""


def parse_backend(text: str) -> Backend:
    """The backend that DIR, oci:DIR or REGISTRY/REPOSITORY names. Raises UsageError.

    The first part is a registry when docker's rule says that it can be nothing else; ./DIR is always a folder.
    """
    if text.startswith("oci:"):
        return FolderBackend(Path(text.removeprefix("oci:")))
    first, slash, _ = text.partition("/")
    is_host = slash and first not in (".", "..", "~") and (any(mark in first for mark in ".:[") or first == "localhost")
    if is_host and is_registry(first.lower()):
        return RegistryBackend(text)
    if is_host or "://" in text:
        raise UsageError(
            f"not a mirror: {text[:200]!a}",
            id="mirror-name-invalid",
            cause="it is neither a folder nor REGISTRY/REPOSITORY",
            next="write HOST:PORT/REPOSITORY without http://; a folder of this name: ./DIR",
        )
    if not text:
        raise UsageError(
            "the name of the mirror is empty", id="mirror-name-empty", next="name a folder or REGISTRY/REPOSITORY"
        )
    return FolderBackend(Path(text))


def read_small(backend: Backend, digest: Digest, limit: int) -> bytes:
    """A blob of at most `limit` bytes, verified. Raises PinError, NetworkError or OSError."""
    data = b""
    for chunk in backend.read(digest):
        data += chunk
        if len(data) > limit:
            raise PinError(f"{digest} is larger than {limit} bytes", id="mirror-blob-too-large", where=backend.name)
    if (actual := Digest.of(data)) != digest:
        raise PinError(
            f"got {actual}, expected {digest}",
            id="mirror-blob-mismatch",
            where=backend.name,
            cause="the blob was changed in the mirror",
        )
    return data
