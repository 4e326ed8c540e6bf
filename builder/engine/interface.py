"""The interface of engines: Engine, BuildRequest, EngineInfo (the result of a probe) and LayoutError."""

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
"""Takes each line of an engine's output."""


@dataclass(frozen=True)
class LocalBase:
    """A local copy of a registry image that stages read. reference: as in FROM, with tag and digest.

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

    context: the folder with everything that the build may read. platform: of the image. jobs: the number of parallel
    jobs inside a step. work: a private folder with the other files of the request, the engine's own and its output,
    which the caller removes. base: the local copy of the registry image that stages read, if there is one. pull: the
    reference of a base that the engine downloads; None forbids downloads. Engines must enforce that the steps of a
    build have no network and no proxies.
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
        """The build arguments that both engines pass to the Dockerfile."""
        return {"JOBS": str(self.jobs)}


@dataclass(frozen=True)
class EngineInfo:
    """The result of a probe: the version of the engine, or the problem and its fix."""

    name: str
    version: str = ""
    problem: str = ""
    fix: str = ""

    @property
    def usable(self) -> bool:
        return not self.problem


class LayoutError(EngineError):
    """This engine cannot read a base from an OCI layout."""


class Engine(Protocol):
    """Builds one target and writes its files as an uncompressed tar."""

    name: str

    @property
    def workers(self) -> int:
        """On how many machines or daemons it builds."""

    def probe(self) -> EngineInfo:
        """Whether this engine can be used here. Never raises."""

    def build(self, request: BuildRequest, tar: Path, log: Log) -> None:
        """Run the build and write the target's files to `tar`.

        Raises EngineError when the build fails; LayoutError when it cannot read the request's `base`.
        """


def host_architecture() -> str:
    """This machine's architecture as OCI spells it."""
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
