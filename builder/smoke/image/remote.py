"""An image in a registry: opened without a copy, with layers streamed on demand, or fetched to the store."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from builder.digest import Digest
from builder.errors import EngineError
from builder.model.reference import Reference
from builder.oci.manifest import Descriptor
from builder.parallel import every
from builder.registry.client import Registry
from builder.smoke.image.opened import LayerBlob, OpenedImage, open_image, read_config
from builder.smoke.image.unpack import free_bytes
from builder.store.store import Store

_NOWHERE = Path("/nonexistent")


class ChunkStream(io.RawIOBase):
    """An iterator of bytes as a stream."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def remote_image(reference: Reference, registry: Registry | None = None) -> OpenedImage:
    """The linux/arm64 image at a reference. Its manifest and configuration are read now, its layers on demand.

    Raises NetworkError, PinError, or InvalidError for an invalid configuration.
    """
    client = registry or Registry()
    manifest, _ = client.platform_manifest(reference)
    pinned = reference.at(manifest.digest)
    config = read_config(client.config(pinned, manifest), str(pinned))

    def stream(digest: Digest, size: int) -> Callable[[], BinaryIO]:
        return lambda: cast("BinaryIO", ChunkStream(client.blob(pinned, digest, size)))

    layers = tuple(
        LayerBlob(item.digest, item.size, _NOWHERE, stream(item.digest, item.size), media_type=item.media_type)
        for item in manifest.layers
    )
    return OpenedImage(manifest.digest, manifest.json, config, layers)


def fetch_image(reference: Reference, store: Store, registry: Registry | None = None) -> OpenedImage:
    """The image with all its blobs in the store, to run it.

    Raises NetworkError, PinError, InvalidError, EngineError.
    """
    client = registry or Registry()
    manifest, _ = client.platform_manifest(reference)
    pinned = reference.at(manifest.digest)
    config = client.config(pinned, manifest)
    read_config(config, str(pinned))

    def fetch(item: Descriptor) -> None:
        store.fill(item.digest, lambda: client.blob(pinned, item.digest, item.size))

    missing = {item.digest: item for item in manifest.layers if not store.has(item.digest)}
    need, free = sum(item.size for item in missing.values()), free_bytes(store.root)
    if need > free:
        raise EngineError(
            f"the image needs {need / 1e9:.3g} GB; {free / 1e9:.3g} GB are free",
            id="disk-space-short",
            where=str(store.root),
            next="free some space (builder gc), or point BUILDER_STORE at a larger disk",
        )
    every(fetch, list(missing.values()), 4)
    store.put(config)
    store.put(manifest.data)
    # The manifest's own digest was verified: the blobs in the store are opened by it.
    return open_image(store.root, manifest.digest)
