"""What an engine is asked and what it answers."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Protocol

from builder.digest import Digest
from builder.errors import EngineError

Log = Callable[[str], None]
"""Told each line of an engine's output."""


@dataclass(frozen=True)
class LocalBase:
    """A registry image that stages read, on this machine. reference: as FROM names it, tag and digest included.

    layout: an OCI layout with the image's manifest and blobs. Its folder of blobs is also what containers/image calls
    `dir:`, which unlike `oci:` takes manifests of Docker's media types. config: digest of the image's config.
    """

    reference: str
    digest: Digest
    config: Digest
    layout: Path


@dataclass(frozen=True)
class BuildRequest:
    """One stage of one Dockerfile.

    context: the folder with everything that the build may read. platform: of the image. jobs: for parallel steps
    inside the build. work: a private folder for the engine's own files, removed by the caller. base: the registry image
    that stages read, where it is on this machine. pull: the reference of one that is not, which the engine downloads;
    None forbids it to. The steps of a build have no network and no proxies in any case: engines must enforce it.
    """

    dockerfile: Path
    target: str
    context: Path
    platform: str
    jobs: int
    work: Path
    base: LocalBase | None = None
    pull: str | None = None
    cancel: Event | None = None

    @property
    def build_arguments(self) -> dict[str, str]:
        """What both engines pass to the Dockerfile."""
        return {"JOBS": str(self.jobs)}


@dataclass(frozen=True)
class EngineInfo:
    """Whether an engine can be used here: its version, or why it cannot and what would help."""

    name: str
    version: str = ""
    problem: str = ""
    fix: str = ""

    @property
    def usable(self) -> bool:
        return not self.problem


class LayoutError(EngineError):
    """This engine cannot read a base from a folder."""


class Engine(Protocol):
    """Builds one target and writes its files as an uncompressed tar."""

    name: str

    def probe(self) -> EngineInfo:
        """Whether it can be used here. Never raises."""

    def build(self, request: BuildRequest, tar: Path, log: Log) -> None:
        """Run the build and write the target's files to `tar`.

        Raises EngineError when the build fails; LayoutError when it cannot read the request's `base`.
        """


def host_architecture() -> str:
    """This machine's architecture as OCI spells it."""
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
