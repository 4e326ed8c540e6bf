"""Starting the container of `builder run --exec` with docker."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from builder.cli.output import say
from builder.cli.request import PlanRequest
from builder.engine.process import foreground
from builder.errors import EngineError, UsageError
from builder.serve import formats, spec
from builder.serve.spec import Container


def host_folders(container: Container) -> list[Path]:
    """The folders of this machine that the container mounts."""
    return [Path(mount.host).expanduser() for mount in container.mounts if not spec.is_file(mount)]


def as_dict(container: Container) -> dict[str, object]:
    """A container as plain data, for --json. Secrets are there by name only."""
    home = os.path.expanduser("~")  # noqa: PTH111
    return {
        "name": container.name,
        "image": container.image,
        "argv": formats.docker_words(container, home=home),
        "port": container.ports[0] if container.ports else container.port,
        "env": dict(container.env),
        "secrets": list(container.secrets),
        "volumes": [formats.bind(mount, home) for mount in container.mounts],
    }


def start(container: Container, request: PlanRequest, *, built: bool) -> None:
    """Run the docker command, after making missing folders. built: the image is the built one of the request.

    Raises UsageError when a mounted file is missing, EngineError when docker is missing or fails.
    """
    if shutil.which("docker") is None:
        raise EngineError(
            "docker is not installed",
            id="docker-missing",
            next="install docker, or print the command without --exec for another machine",
        )
    for mount in container.mounts:
        path = Path(mount.host).expanduser()
        if spec.is_file(mount) and not path.is_file():
            raise UsageError(
                f"there is no file {path}",
                id="mounted-file-missing",
                next=PlanRequest(request.recipe, profile=request.profile).command("prefetch"),
            )
    # Docker would make missing folders as root.
    for folder in host_folders(container):
        folder.mkdir(parents=True, exist_ok=True)
    say(formats.docker_command(container))
    home = os.path.expanduser("~")  # noqa: PTH111
    if status := foreground(formats.docker_words(container, home=home)):
        load = f"{request.command('load')}, if docker has no such image; " if built else ""
        raise EngineError(
            f"docker run ended with {status}",
            id="docker-run-failed",
            cause="see docker's message above",
            next=f"{load}docker rm --force {container.name}, if a container of that name exists; builder doctor",
        )
