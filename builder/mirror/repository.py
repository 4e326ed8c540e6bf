"""RegistryBackend: a mirror in one repository of a registry, with a tag for each artifact."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from builder.digest import Digest
from builder.errors import PinError, UsageError
from builder.mirror.artifact import EMPTY, Artifact
from builder.model.reference import Reference
from builder.oci.manifest import OCI_MANIFEST
from builder.store.blobs import chunks_of, rereading

if TYPE_CHECKING:
    from builder.registry.client import Registry
from builder.registry.referrers import attach_manifest


class RegistryBackend:
    """A repository of a registry."""

    def __init__(self, text: str, client: Registry | None = None) -> None:
        self._repository = Reference.parse(text)
        if self._repository.tag or self._repository.digest:
            raise UsageError(
                f"{text!r} names one image",
                id="mirror-names-image",
                cause="a mirror is a whole repository",
                next="leave out tag and digest",
            )
        self.name = f"{self._repository.registry}/{self._repository.repository}"
        self._client = client

    @property
    def client(self) -> Registry:
        """The registry client. Created on first use, as it reads configuration and logins."""
        if self._client is None:
            # Imported here: a mirror in a folder needs no HTTP, whose library takes 0.1 s.
            from builder.registry.client import Registry

            self._client = Registry()
        return self._client

    def has(self, digest: Digest, size: int) -> bool:
        """Ask the registry."""
        return self.client.has_blob(self._repository, digest)

    def read(self, digest: Digest, size: int | None = None) -> Iterator[bytes]:
        """A blob's chunks from the registry or a mirror of it, verified."""
        return self.client.blob(self._repository, digest, size)

    def file(self, digest: Digest) -> Path | None:
        """None: a registry has no files."""
        return None

    def put(self, digest: Digest, size: int, chunks: Callable[[], Iterator[bytes]]) -> None:
        """Upload a blob."""
        self.client.upload(self._repository, digest, size, chunks)

    def put_file(self, file: Path, digest: Digest, size: int, watch: Callable[[int], None]) -> None:
        """Upload a file."""

        def chunks() -> Iterator[bytes]:
            count = 0
            for chunk in chunks_of(file):
                count += len(chunk)
                watch(count)
                yield chunk

        self.client.upload(self._repository, digest, size, chunks)

    def is_intact(self, digest: Digest, size: int) -> bool:
        """Read the blob from the registry; the client verifies it."""
        try:
            rereading(lambda: deque(self.client.blob(self._repository, digest, size), maxlen=0))
        except PinError:
            return False
        return True

    def discard(self, digest: Digest) -> None:
        """Do nothing: a registry keeps its blobs; an upload may replace a damaged one."""

    def publish(self, artifact: Artifact) -> bool:
        """Put the manifest under its tag, unless it is there; one that is about an image is attached to it."""
        target = Reference(self._repository.registry, self._repository.repository, artifact.tag)
        if not artifact.attached:
            with contextlib.suppress(PinError):
                if self.client.manifest(target).digest == artifact.digest:
                    return False
        if not self.client.has_blob(target, Digest.of(EMPTY)):
            self.client.upload(target, Digest.of(EMPTY), len(EMPTY), lambda: iter((EMPTY,)))
        if artifact.attached:
            attach_manifest(self.client, target, artifact.manifest)
        else:
            self.client.put_manifest(target, artifact.manifest, OCI_MANIFEST)
        return True

    def writing(self) -> contextlib.AbstractContextManager[None]:
        """No lock: a registry accepts several writers."""
        return contextlib.nullcontext()
