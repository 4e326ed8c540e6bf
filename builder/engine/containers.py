"""The state of a container, and its entry in the list of containers, without the docker SDK."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ContainerState:
    """Whether a container runs, its exit status when it does not, and whether the kernel killed it for memory."""

    running: bool
    code: int
    out_of_memory: bool


@dataclass(frozen=True)
class ListedContainer:
    """A running container in the daemon's list. image: the name that it was started with."""

    name: str
    image: str
    networks: tuple[str, ...]
