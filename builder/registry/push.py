"""Pushing an image: only blobs that the registry lacks, the manifest last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from builder.digest import Digest
from builder.errors import PinError, UsageError
from builder.model.reference import Reference
from builder.oci.assemble import Image, ImageLayer
from builder.oci.manifest import OCI_MANIFEST
from builder.registry.client import Registry
from builder.store.blobs import chunks_of
from builder.store.store import Store

AT_ONCE = 4

Told = Callable[[Digest, str, int], None]
"""Told (blob digest, what happened: present, mounted or uploaded, size in bytes)."""


def push_image(image: Image, store: Store, target: Reference, told: Told, registry: Registry | None = None) -> Digest:
    """Push to a tag (or by digest) and return the digest. A blob of the base is mounted when it lies in the same
    registry, else streamed from there. The tag is written last, so that it never names half an image.

    Raises NetworkError, PinError or UsageError.
    """
    if target.digest is not None and target.digest != image.digest:
        raise UsageError(f"{target} names another digest than the image's, {image.digest}", id="push-digest-mismatch")
    client = registry or Registry()
    origin = Reference.parse(image.base.reference) if image.base else None

    def one(layer: ImageLayer) -> None:
        if client.has_blob(target, layer.digest):
            told(layer.digest, "present", layer.size)
            return
        if layer.of_base:
            assert origin is not None
            if origin.registry == target.registry and client.mount(target, layer.digest, origin.repository):
                told(layer.digest, "mounted", layer.size)
                return
            client.upload(target, layer.digest, layer.size, lambda: client.blob(origin, layer.digest, layer.size))
        else:
            try:
                client.upload(target, layer.digest, layer.size, lambda: chunks_of(store.blob(layer.digest)))
            except PinError:
                store.verify(layer.digest)  # it was hashed on its way; one that is damaged is removed and told
                raise
        told(layer.digest, "uploaded", layer.size)

    unique = {layer.digest: layer for layer in image.layers}
    with ThreadPoolExecutor(AT_ONCE) as workers:
        for _ in workers.map(one, unique.values()):
            pass
    if not client.has_blob(target, image.config_digest):
        client.upload(target, image.config_digest, len(image.config), lambda: iter((image.config,)))
    return client.put_manifest(target, image.manifest, OCI_MANIFEST)


def base_blobs(image: Image) -> Callable[[ImageLayer], Iterator[bytes]] | None:
    """Reads layers of the image's base from its registry; None for an image without one."""
    if image.base is None:
        return None
    client, origin = Registry(), Reference.parse(image.base.reference)
    return lambda layer: client.blob(origin, layer.digest, layer.size)
