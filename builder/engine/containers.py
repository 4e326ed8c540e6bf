"""What docker's daemon says of a container: its state, and its line in the list."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ContainerState:
    """Of a container: whether it runs, the exit status when it does not, and whether the kernel ended it for memory."""

    running: bool
    code: int
    out_of_memory: bool


@dataclass(frozen=True)
class ListedContainer:
    """A running container in the daemon's list. image: as it was named at its start."""

    name: str
    image: str
    networks: tuple[str, ...]
