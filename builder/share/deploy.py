"""Deploys an image to docker daemons of other machines: each pulls by digest what it lacks, through ssh."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from builder.errors import EngineError
from builder.share.parcel import Parcel, serving
from builder.share.tunnel import Tunnel
from builder.store.store import Store

PAUSES = (2.0, 5.0, 15.0, 30.0, 60.0)
"""Seconds before each further attempt, when a connection to a machine breaks."""
_BROKEN = ("docker-unreachable", "docker-timeout", "deploy-tunnel-failed")


@dataclass(frozen=True)
class Deployed:
    """A machine that has the image. moved: layers and bytes that it pulled, for a person; empty when it had all."""

    host: str
    moved: str
    seconds: float


def status(host: str, parcel: Parcel, name: str) -> str:
    """What a machine's docker has under a name: "current", "other" or "missing". Raises EngineError."""
    from builder.engine.daemon import Daemon

    with Daemon(f"ssh://{host}") as daemon:
        found = daemon.image_id(name)
    if found is None:
        return "missing"
    return "current" if parcel.is_image(found) else "other"


def deploy(
    host: str, parcel: Parcel, store: Store, name: str, say: Callable[[str], None], pauses: tuple[float, ...] = PAUSES
) -> Deployed:
    """Bring an image into the docker of a machine, under a name. host: [USER@]HOST[:PORT], as for ssh.

    It is tried again when the connection breaks. Docker keeps the layers that it has, so a further attempt goes on.
    Raises EngineError, and PinError when docker then has another image.
    """
    # Imported here: the docker SDK takes 0.3 s.
    from builder.engine.daemon import Daemon

    begin = time.monotonic()
    left, reached, tunnel = list(pauses), False, None
    while True:
        try:
            with Daemon(f"ssh://{host}") as daemon:
                if parcel.is_image(daemon.image_id(name)):
                    return Deployed(host, "", time.monotonic() - begin)
                with serving(parcel, store) as counter, Tunnel(host, counter.server.port) as tunnel:
                    reached = True
                    parcel.pull(daemon, f"127.0.0.1:{tunnel.remote}", counter.token, name)
                    return Deployed(host, counter.said(parcel), time.monotonic() - begin)
        except EngineError as error:
            # A wrong name, no right, no docker, a full disk: these will be the same again.
            broken = error.id in _BROKEN or (tunnel is not None and tunnel.is_broken)
            if not (reached and broken and left):
                raise
            say(f"{host}: the connection broke ({error.cause or error.what}); tries again in {left[0]:.0f} s")
            time.sleep(left.pop(0))
