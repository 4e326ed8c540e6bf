"""The blobs of a layer, between the store and the repository of a cache."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from builder.attest.receipt import is_receipt_of
from builder.cache.entry import EMPTY, Entry, key_manifest, layer_manifest
from builder.digest import Digest
from builder.errors import PinError
from builder.model.reference import Reference
from builder.oci.format import MEDIA_TYPES
from builder.oci.manifest import OCI_MANIFEST
from builder.registry.client import Registry
from builder.registry.errors import MismatchError
from builder.registry.referrers import attach_manifest
from builder.store.blobs import CHUNK, BlobWriter, chunks_of, rereading
from builder.store.records import LayerRecord
from builder.store.store import SMALL, Store


def take_layer(
    client: Registry, place: Reference, store: Store, entry: Entry, key: str, where: str, watch: Callable[[int], None]
) -> bool:
    """Download the layer of an entry and write its record; False when the registry has lost a blob of it.

    watch: receives the number of bytes of the blob so far. where: the layer, for messages. Raises PinError when a blob
    is not what the entry says, NetworkError and EngineError.
    """
    layer = entry.layer
    assert layer.receipt is not None
    small = [(layer.listing, entry.listing_size), (layer.receipt, min(entry.receipt_size, SMALL))]
    try:
        for digest, size in small:
            if not store.has(digest):
                store.fill(digest, lambda digest=digest, size=size: client.blob(place, digest, size))  # type: ignore[misc]
        if not is_receipt_of(store.read(layer.receipt), key, layer.digest):
            raise _wrong(where, place, entry, "its receipt is of another layer")
        if not store.has(layer.digest):
            problem = rereading(lambda: _fill_layer(client.blob(place, layer.digest, layer.size), store, layer, watch))
            if problem:
                raise _wrong(where, place, entry, problem)
    except MismatchError as error:
        raise _wrong(where, place, entry, f"the registry serves other bytes: {error.what}") from None
    except PinError as error:
        if error.id == "cache-layer-wrong":
            raise
        return False
    return True


_WINDOW = 1 << 27
"""Bytes: the largest window of zstd that is accepted, as zstd's own program does."""


class _Source:
    """A file to read from: the chunks of a blob, which are written to the store meanwhile."""

    def __init__(self, chunks: Iterator[bytes], writer: BlobWriter, watch: Callable[[int], None]) -> None:
        self._chunks = chunks
        self._writer = writer
        self._watch = watch
        self._rest = b""

    def read(self, size: int = CHUNK) -> bytes:
        if not self._rest:
            self._rest = next(self._chunks, b"")
            self._writer.write(self._rest)
            self._watch(self._writer.size)
        found, self._rest = self._rest[:size], self._rest[size:]
        return found


def _fill_layer(chunks: Iterator[bytes], store: Store, layer: LayerRecord, watch: Callable[[int], None]) -> str:
    """Write a layer into the store if its tar is the one that its record names; else returns how it differs.

    Image configurations name the tar, so it is unpacked meanwhile. Raises PinError, NetworkError and EngineError.
    """
    import zstandard

    found, size = hashlib.sha256(), 0
    with store.writer() as writer:
        source: Any = _Source(chunks, writer, watch)
        reader: Any = source
        if layer.media_type == MEDIA_TYPES["gzip"]:
            reader = gzip.GzipFile(fileobj=source)
        elif layer.media_type == MEDIA_TYPES["zstd"]:
            reader = zstandard.ZstdDecompressor(max_window_size=_WINDOW).stream_reader(
                source, read_size=CHUNK, read_across_frames=True
            )
        problem = ""
        try:
            while not problem and (data := reader.read(CHUNK)):
                found.update(data)
                size += len(data)
                problem = "its tar is larger than its builder says" if size > layer.tar_size else ""
        except (zstandard.ZstdError, zlib.error, OSError, EOFError):
            problem = "it cannot be decompressed"
        # The client compares the digest at the end: bytes that it did not ask for are the registry's fault.
        while source.read():
            pass
        if problem or (size, found.hexdigest()) != (layer.tar_size, layer.diff_id.hex):
            return problem or "its tar is another one than its builder says"
        writer.commit(layer.digest)
    return ""


def put_layer(client: Registry, place: Reference, store: Store, said: dict[str, object], layer: LayerRecord) -> Digest:
    """Upload the blobs of a layer that the repository lacks; returns the digest that stands for its key.

    said: the predicate about it. Raises NetworkError, PinError.
    """
    assert layer.receipt is not None
    for digest in (layer.digest, layer.listing, layer.receipt):
        if not client.has_blob(place, digest):
            path = store.blob(digest)
            client.upload(place, digest, path.stat().st_size, lambda path=path: chunks_of(path))  # type: ignore[misc]
    put_empty(client, place)
    key = str(said["key"])
    about = client.put_manifest(Reference(place.registry, place.repository, key), key_manifest(key), OCI_MANIFEST)
    attach_manifest(client, place, layer_manifest(said, about))
    return about


def put_empty(client: Registry, place: Reference) -> None:
    """Upload the blob that the manifests of a cache have as their configuration. Raises NetworkError."""
    empty = Digest.of(EMPTY)
    if not client.has_blob(place, empty):
        client.upload(place, empty, len(EMPTY), lambda: iter((EMPTY,)))


def _wrong(where: str, place: Reference, entry: Entry, cause: str) -> PinError:
    return PinError(
        "the layer in the cache is not the one that its builders signed",
        id="cache-layer-wrong",
        where=where,
        cause=f"{cause}; {entry.said}",
        next=f"build without --cache, and look into the repository {place.registry}/{place.repository}",
    )
