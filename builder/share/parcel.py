"""Parcel: an image on its way into a docker daemon, which pulls it by its digest from a Server."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.digest import Digest
from builder.errors import EngineError, PinError
from builder.events import Listener
from builder.oci.assemble import Image
from builder.share import PORT
from builder.share.library import Library, Offer
from builder.share.server import Server
from builder.store.store import Store

if TYPE_CHECKING:
    from builder.engine.daemon import Daemon


@dataclass(frozen=True)
class Parcel:
    """An image whose manifest is in the store. repository: its name there. base: the reference of an image in a
    registry from which layers come that the store lacks. platform: os/architecture."""

    repository: str
    digest: Digest
    config: Digest
    layers: frozenset[Digest]
    platform: str
    base: str | None

    def is_image(self, id: str | None) -> bool:
        """Whether docker's id of an image is this one: its digest, or with overlay2 that of its configuration."""
        return id in (self.digest, self.config)

    def pull(self, daemon: Daemon, host: str, login: tuple[str, str], name: str, listener: Listener) -> None:
        """Make a daemon pull from a server at HOST:PORT and give the image this name. login: user and password.

        listener: as in `Daemon.pull`. Raises EngineError, and PinError when docker then has another image of this name.
        """
        source = f"{host}/{self.repository}@{self.digest}"
        daemon.pull(source, self.platform, {"username": login[0], "password": login[1]}, listener)
        daemon.tag(source, name)
        found = daemon.image_id(name)
        if not self.is_image(found):
            raise PinError(
                f"docker has another image than it was given: {found}", id="docker-image-differs", where=daemon.host
            )
        # With the containerd image store every name has the digest. With overlay2 only what was pulled has it.
        if found == self.digest:
            daemon.remove_image(source)


def parcel_of(image: Image, recipe: str) -> Parcel:
    """An assembled image."""
    platform = "/".join(str(image.config_json.get(part)) for part in ("os", "architecture"))
    layers = frozenset(layer.digest for layer in image.layers)
    base = image.base.reference if image.base is not None else None
    return Parcel(recipe, image.digest, image.config_digest, layers, platform, base)


@dataclass
class Counter:
    """What a server has sent: bytes by blob. server: whom to ask."""

    server: Server
    token: str
    moved: dict[Digest, int]


def said(parcel: Parcel, moved: Mapping[Digest, int]) -> str:
    """The layers and bytes that moved, for a person. moved: bytes by blob."""
    layers, size = parcel.layers, sum(moved.values())
    return f"{len(layers & moved.keys())} of {len(layers)} layers, {size / 1e6:.1f} MB"


@contextmanager
def serving(parcel: Parcel, store: Store) -> Iterator[Counter]:
    """A server of one image on loopback, with a token. Raises EngineError."""
    moved: dict[Digest, int] = {}

    def sent(client: str, digest: Digest, size: int) -> None:
        moved[digest] = moved.get(digest, 0) + size

    token = secrets.token_urlsafe(24)
    library = Library(store, [Offer(parcel.repository, "latest", parcel.digest, parcel.base, 0.0)])
    with _server(library, token, sent) as server:
        yield Counter(server, token, moved)


def _server(library: Library, token: str, sent: Callable[[str, Digest, int], None]) -> Server:
    try:
        return Server(library, ("127.0.0.1", PORT), token=token, sent=sent)
    except EngineError:  # another load, or `builder serve`
        return Server(library, token=token, sent=sent)
