"""Pushing an image: only blobs that the registry lacks, the manifest last."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from builder.digest import Digest
from builder.errors import PinError, UsageError
from builder.model.reference import Reference
from builder.oci.assemble import Image, ImageLayer
from builder.oci.manifest import OCI_MANIFEST
from builder.parallel import every
from builder.registry.client import Registry
from builder.store.blobs import chunks_of
from builder.store.store import Store

AT_ONCE = 4

PushListener = Callable[[Digest, str, int], None]
"""Receives each blob: digest, outcome (present, mounted or uploaded), size in bytes."""


def push_image(
    image: Image, store: Store, target: Reference, listener: PushListener, registry: Registry | None = None
) -> Digest:
    """Push to a tag (or by digest) and return the digest.

    A layer of the base is mounted when the base is in the same registry, else streamed from its registry. The tag is
    written last, so it never names an incomplete image.

    Raises NetworkError, PinError or UsageError.
    """
    if target.digest is not None and target.digest != image.digest:
        raise UsageError(f"{target} does not have the digest of the image, {image.digest}", id="push-digest-mismatch")
    client = registry or Registry()
    origin = Reference.parse(image.base.reference) if image.base else None

    def push_layer(layer: ImageLayer) -> None:
        if client.has_blob(target, layer.digest):
            listener(layer.digest, "present", layer.size)
            return
        if layer.of_base:
            assert origin is not None
            if origin.registry == target.registry and client.mount(target, layer.digest, origin.repository):
                listener(layer.digest, "mounted", layer.size)
                return
            client.upload(target, layer.digest, layer.size, lambda: client.blob(origin, layer.digest, layer.size))
        else:
            try:
                client.upload(target, layer.digest, layer.size, lambda: chunks_of(store.blob(layer.digest)))
            except PinError:
                store.verify(layer.digest)  # the upload hashed the blob; `verify` removes a damaged one and raises
                raise
        listener(layer.digest, "uploaded", layer.size)

    every(push_layer, list({layer.digest: layer for layer in image.layers}.values()), AT_ONCE)
    if not client.has_blob(target, image.config_digest):
        client.upload(target, image.config_digest, len(image.config), lambda: iter((image.config,)))
    return client.put_manifest(target, image.manifest, OCI_MANIFEST)


def base_blobs(image: Image) -> Callable[[ImageLayer], Iterator[bytes]] | None:
    """A function that reads layers of the image's base from its registry; None for an image without a base."""
    if image.base is None:
        return None
    client, origin = Registry(), Reference.parse(image.base.reference)
    return lambda layer: client.blob(origin, layer.digest, layer.size)
