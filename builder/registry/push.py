"""Pushing an image: only blobs that the registry lacks, the manifest last."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol

from builder.digest import Digest
from builder.errors import NetworkError, PinError, UsageError
from builder.model.reference import Reference
from builder.oci.assemble import Image, ImageLayer
from builder.oci.manifest import OCI_MANIFEST
from builder.parallel import every
from builder.registry.client import Registry
from builder.store.blobs import chunks_of
from builder.store.store import Store

AT_ONCE = 4

PushListener = Callable[[Digest, str, int], None]
"""Receives each blob: digest, outcome, size in bytes. Outcomes: present, mounted, streamed (from the base's registry),
uploaded."""


class Watch(Protocol):
    """Watches the bytes of a push. Called from several threads."""

    def expect(self, total: int) -> None:
        """So many bytes are to be sent."""

    def moved(self, digest: Digest, count: int) -> None:
        """So many bytes of a blob are on their way; after a failure it may be fewer than before."""


def survey_push(image: Image, target: Reference, registry: Registry) -> dict[Digest, str]:
    """What a push would do with each layer: present, mount, stream or upload. Only asks.

    Whether the registry mounts is known when it is asked to; else the layer is streamed. Raises NetworkError.
    """
    origin = Reference.parse(image.base.reference) if image.base else None
    found: dict[Digest, str] = {}

    def look(layer: ImageLayer) -> None:
        if registry.has_blob(target, layer.digest):
            found[layer.digest] = "present"
        elif layer.of_base and origin is not None:
            found[layer.digest] = "mount" if origin.registry == target.registry else "stream"
        else:
            found[layer.digest] = "upload"

    every(look, list({layer.digest: layer for layer in image.layers}.values()), AT_ONCE)
    return found


def push_image(
    image: Image,
    store: Store,
    target: Reference,
    listener: PushListener,
    registry: Registry | None = None,
    watch: Watch | None = None,
) -> Digest:
    """Push to a tag (or by digest) and return the digest.

    Where the repository has the image, only the tag is written. A layer of the base is mounted when the base is in the
    same registry, else streamed from its registry. The tag is written last, so it never names an incomplete image.

    Raises NetworkError, PinError or UsageError.
    """
    if target.digest is not None and target.digest != image.digest:
        raise UsageError(
            f"the image has another digest: {image.digest}",
            id="push-digest-mismatch",
            where=str(target),
            next="push to a tag, or build the image that has this digest",
        )
    client = registry or Registry()
    origin = Reference.parse(image.base.reference) if image.base else None
    layers = {layer.digest: layer for layer in image.layers}
    if client.has_manifest(target, image.digest):
        # A registry that has lost a blob refuses the manifest; each blob is asked for then.
        with contextlib.suppress(PinError, NetworkError):
            digest = client.put_manifest(target, image.manifest, OCI_MANIFEST)
            for layer in layers.values():
                listener(layer.digest, "present", layer.size)
            return digest
    found = survey_push(image, target, client)
    if watch is not None:
        watch.expect(sum(layers[digest].size for digest, what in found.items() if what in ("stream", "upload")))

    def push_layer(layer: ImageLayer) -> None:
        if found[layer.digest] == "present":
            listener(layer.digest, "present", layer.size)
            return
        if layer.of_base:
            assert origin is not None
            if found[layer.digest] == "mount" and client.mount(target, layer.digest, origin.repository):
                listener(layer.digest, "mounted", layer.size)
                return
            source = origin
            chunks = _watched(lambda: client.blob(source, layer.digest, layer.size), layer.digest, watch)
            client.upload(target, layer.digest, layer.size, chunks)
            listener(layer.digest, "streamed", layer.size)
            return
        try:
            chunks = _watched(lambda: chunks_of(store.blob(layer.digest)), layer.digest, watch)
            client.upload(target, layer.digest, layer.size, chunks)
        except PinError:
            store.verify(layer.digest)  # the upload hashed the blob; `verify` removes a damaged one and raises
            raise
        listener(layer.digest, "uploaded", layer.size)

    every(push_layer, list(layers.values()), AT_ONCE)
    if not client.has_blob(target, image.config_digest):
        client.upload(target, image.config_digest, len(image.config), lambda: iter((image.config,)))
    return client.put_manifest(target, image.manifest, OCI_MANIFEST)


def _watched(
    chunks: Callable[[], Iterator[bytes]], digest: Digest, watch: Watch | None
) -> Callable[[], Iterator[bytes]]:
    def read() -> Iterator[bytes]:
        count = 0
        for chunk in chunks():
            yield chunk
            count += len(chunk)
            if watch is not None:
                watch.moved(digest, count)

    return read


def base_blobs(image: Image) -> Callable[[ImageLayer], Iterator[bytes]] | None:
    """A function that reads layers of the image's base from its registry; None for an image without a base."""
    if image.base is None:
        return None
    client, origin = Registry(), Reference.parse(image.base.reference)
    return lambda layer: client.blob(origin, layer.digest, layer.size)
