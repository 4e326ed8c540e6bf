"""Container to keywords of the docker SDK's `containers.create`, equal to the options of `formats.docker_words`."""

from __future__ import annotations

import os
from typing import Any

from docker.types import DeviceRequest, Ulimit

from builder.serve.formats import bind
from builder.serve.spec import Container


def create_options(c: Container, *, home: str) -> dict[str, Any]:
    """All options but name, image and command. Secrets get their values from the environment, as with `--env NAME`.

    home: replaces a leading ~ of a host path.
    """
    secrets = {name: os.environ[name] for name in c.secrets if name in os.environ}
    options: dict[str, Any] = {
        "device_requests": [DeviceRequest(count=-1, capabilities=[["gpu"]])],
        "ipc_mode": "host",
        "environment": {**dict(c.env), **secrets},
        "volumes": [bind(mount, home) for mount in c.mounts],
        "devices": list(c.devices),
    }
    if c.ports:
        outside, inside = c.ports
        options["ports"] = {f"{inside}/tcp": (c.listen, outside) if c.listen else outside}
    else:
        options["network_mode"] = "host"
    options |= {"shm_size": c.shm_size} if c.shm_size else {}
    options |= {"ulimits": [Ulimit(name="memlock", soft=-1, hard=-1)]} if c.memlock else {}
    options |= {"user": c.user} if c.user else {}
    options |= {"entrypoint": [c.entrypoint]} if c.entrypoint else {}
    return options
