"""Loads an assembled image into docker: the daemon pulls it by digest from this process, or reads it as a stream."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING

from builder.errors import EngineError
from builder.events import Event, Listener
from builder.oci.assemble import Image
from builder.oci.dockerarchive import write_archive
from builder.oci.layout import BlobSource
from builder.oci.manifest import Descriptor
from builder.share.parcel import Parcel, parcel_of, said, serving
from builder.share.server import USER
from builder.store.blobs import rereading
from builder.store.store import Store

if TYPE_CHECKING:
    from builder.engine.daemon import Daemon


def load_image(
    image: Image,
    store: Store,
    recipe: str,
    name: str,
    base_blob: BlobSource | None,
    say: Callable[[str], None],
    listener: Listener,
) -> None:
    """Load the image into docker's daemon under `name`. Nothing is written to disk here. Raises EngineError.

    A daemon of this machine pulls only the layers that it lacks, several at once, and knows the image by its digest.
    Others get all layers as a stream. base_blob: gives the layers of the base. say: receives what was moved. listener:
    gets the progress of each layer, named by the first 12 digits of its digest. Raises UsageError for an invalid name.
    """
    with _daemon() as daemon:
        if daemon.host.startswith("unix://") and _pull(daemon, parcel_of(image, recipe), store, name, say, listener):
            return
        rereading(lambda: daemon.load(lambda out: _write(out, image, store, name, base_blob, listener)))


def check_docker() -> None:
    """Raises EngineError when no daemon answers: a build that loads its image asks before it begins."""
    with _daemon():
        pass


@contextlib.contextmanager
def _daemon() -> Iterator[Daemon]:
    """docker's daemon; its errors name another way."""
    # Imported here: the docker SDK takes 0.3 s, and only a load needs it.
    from builder.engine.daemon import Daemon

    try:
        with Daemon() as daemon:
            yield daemon
    except EngineError as error:
        steps = [error.next, "or build with --output oci:DIR and copy it with skopeo"]
        raise error.replaced(next="; ".join(filter(None, steps))) from error


def _pull(
    daemon: Daemon, parcel: Parcel, store: Store, name: str, say: Callable[[str], None], listener: Listener
) -> bool:
    """Let the daemon pull the image; False when it cannot reach this process."""
    with serving(parcel, store) as counter:
        try:
            parcel.pull(daemon, counter.server.host, (USER, counter.token), name, listener)
        except EngineError:
            # A daemon in a virtual machine or another network namespace has another loopback.
            if counter.server.requests:
                raise
            return False
        say(f"docker pulled {said(parcel, counter.moved)}")
    return True


def _write(
    out: IO[bytes], image: Image, store: Store, name: str, base_blob: BlobSource | None, listener: Listener
) -> None:
    layers = {layer.digest: layer for layer in image.layers}

    def chunks(item: Descriptor) -> Iterator[bytes]:
        layer, done = layers[item.digest], 0
        for chunk in base_blob(layer) if layer.of_base and base_blob else store.chunks(layer.digest):
            yield chunk
            done += len(chunk)
            listener(Event(layer.digest.short, "fetching", done, layer.size))

    write_archive(out, name, image.manifest, image.config, chunks)
