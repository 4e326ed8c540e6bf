"""Loads an assembled image into docker: the daemon pulls it by digest from this process, or reads it as a stream."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING

from builder.digest import Digest
from builder.errors import EngineError
from builder.oci.assemble import Image
from builder.oci.dockerarchive import write_archive
from builder.oci.layout import BlobSource
from builder.oci.manifest import Descriptor
from builder.share.library import Library, Offer
from builder.share.server import USER, Server
from builder.store.blobs import rereading
from builder.store.store import Store

if TYPE_CHECKING:
    from builder.engine.daemon import Daemon

PORT = 5080
"""Of `builder serve`, too: so the repository that docker remembers can be pulled from again."""


def load_image(
    image: Image, store: Store, recipe: str, name: str, base_blob: BlobSource | None, say: Callable[[str], None]
) -> None:
    """Load the image into docker's daemon under `name`. Nothing is written to disk here. Raises EngineError.

    A daemon of this machine pulls only the layers that it lacks, several at once, and knows the image by its digest.
    Others get all layers as a stream. base_blob: gives the layers of the base. say: receives what was moved. Raises
    UsageError for an invalid name.
    """
    # Imported here: the docker SDK takes 0.3 s, and only a load needs it.
    from builder.engine.daemon import Daemon

    try:
        with Daemon() as daemon:
            if daemon.host.startswith("unix://") and _pull(daemon, image, store, recipe, name, say):
                return
            rereading(lambda: daemon.load(lambda out: _write(out, image, store, name, base_blob)))
    except EngineError as error:
        steps = [error.next, "or build with --output oci:DIR and copy it with skopeo"]
        raise error.replaced(next="; ".join(filter(None, steps))) from error


def _pull(daemon: Daemon, image: Image, store: Store, recipe: str, name: str, say: Callable[[str], None]) -> bool:
    """Let the daemon pull the image; False when it cannot reach this process."""
    moved: dict[Digest, int] = {}
    token = secrets.token_urlsafe(24)
    library = Library(store, [Offer(recipe, "latest", image.digest, image.base.reference if image.base else None, 0)])

    def sent(client: str, digest: Digest, size: int) -> None:
        moved[digest] = moved.get(digest, 0) + size

    with _server(library, token, sent) as server:
        source = f"{server.host}/{recipe}@{image.digest}"
        platform = "/".join(str(image.config_json.get(part)) for part in ("os", "architecture"))
        try:
            daemon.pull(source, platform=platform, login=(USER, token))
        except EngineError:
            # A daemon in a virtual machine or another network namespace has another loopback.
            if server.requests:
                raise
            return False
    daemon.tag(source, name)
    layers = {layer.digest for layer in image.layers}
    say(f"docker pulled {len(layers & moved.keys())} of {len(layers)} layers, {sum(moved.values()) / 1e6:.1f} MB")
    # With the containerd image store every name has the digest. With overlay2 only what was pulled has it.
    if daemon.image_id(name) == image.digest:
        daemon.remove_image(source)
    return True


def _server(library: Library, token: str, sent: Callable[[str, Digest, int], None]) -> Server:
    try:
        return Server(library, ("127.0.0.1", PORT), token=token, sent=sent)
    except EngineError:  # another load, or `builder serve`
        return Server(library, token=token, sent=sent)


def _write(out: IO[bytes], image: Image, store: Store, name: str, base_blob: BlobSource | None) -> None:
    layers = {layer.digest: layer for layer in image.layers}

    def chunks(item: Descriptor) -> Iterator[bytes]:
        layer = layers[item.digest]
        return base_blob(layer) if layer.of_base and base_blob else store.chunks(layer.digest)

    write_archive(out, name, image.manifest, image.config, chunks)
