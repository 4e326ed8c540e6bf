"""Deploys an image to docker daemons of other machines: each pulls by digest what it lacks, through ssh."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.errors import EngineError
from builder.events import Listener
from builder.share.parcel import Parcel, said
from builder.share.way import Via, direct
from builder.store.store import Store

if TYPE_CHECKING:
    from builder.engine.daemon import Daemon

PAUSES = (2.0, 5.0, 15.0, 30.0, 60.0)
"""Seconds before each further attempt, when a connection to a machine breaks."""
_BROKEN = ("docker-unreachable", "docker-timeout", "deploy-tunnel-failed", "deploy-relay-failed")


@dataclass(frozen=True)
class Deployed:
    """A machine that has the image. moved: what it pulled and from where, for a person; empty when it had all."""

    host: str
    moved: str
    seconds: float


def status(host: str, parcel: Parcel, name: str, via: str | None = None) -> str:
    """What a machine's docker has under a name: "current", "other" or "missing". Raises EngineError."""
    with _daemon(host, via) as daemon:
        found = daemon.image_id(name)
    if found is None:
        return "missing"
    return "current" if parcel.is_image(found) else "other"


def deploy(
    host: str,
    parcel: Parcel,
    store: Store,
    name: str,
    say: Callable[[str], None],
    listener: Listener,
    pauses: tuple[float, ...] = PAUSES,
    via: Via | None = None,
) -> Deployed:
    """Bring an image into the docker of a machine, under a name. host: [USER@]HOST[:PORT], as for ssh.

    It is tried again when the connection breaks. Docker keeps the layers that it has, so a further attempt goes on.
    listener: gets the progress of each layer. via: the relay that the layers come from. Raises EngineError, and
    PinError when docker then has another image.
    """
    begin = time.monotonic()
    left, way = list(pauses), None
    while True:
        try:
            with _daemon(host, via.host if via else None) as daemon:
                if parcel.is_image(daemon.image_id(name)):
                    return Deployed(host, "", time.monotonic() - begin)
                with via.way(host) if via else direct(host, parcel, store) as way:
                    parcel.pull(daemon, way.address, (way.user, way.token), name, listener)
                    moved = f"{said(parcel, way.moved())} from {way.source}"
                    return Deployed(host, moved, time.monotonic() - begin)
        except EngineError as error:
            # A wrong name, no right, no docker, a full disk: these will be the same again.
            broken = error.id in _BROKEN or (way is not None and way.is_broken())
            if not (way is not None and broken and left):
                raise
            say(f"{host}: the connection broke ({error.cause or error.what}); tries again in {left[0]:.0f} s")
            time.sleep(left.pop(0))


def _daemon(host: str, via: str | None) -> Daemon:
    # Imported here: the docker SDK takes 0.3 s.
    from builder.engine.daemon import Daemon

    return Daemon(f"ssh://{host}", via=f"ssh://{via}" if via not in (None, host) else None)
