"""What a docker daemon without containers knows: images, containers, and what it refuses."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = Any


PATIENCE = 120.0


@dataclass
class FakeContainer:
    """A container. body: of the request that created it. asked: the stop or removal that its program may see."""

    name: str
    body: Json
    output: list[tuple[int, bytes]] = field(default_factory=list)
    code: int | None = None
    started: bool = False
    removed: bool = False
    asked: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def id(self) -> str:
        return hashlib.sha256(self.name.encode()).hexdigest()

    @property
    def words(self) -> list[str]:
        """Entry point and command."""
        return [*(self.body.get("Entrypoint") or []), *(self.body.get("Cmd") or [])]

    @property
    def env(self) -> dict[str, str]:
        return dict(item.split("=", 1) for item in self.body.get("Env") or [])

    @property
    def host(self) -> Json:
        """What it gets of the host: HostConfig."""
        return self.body["HostConfig"]

    def print(self, text: str, stream: int = 1) -> None:
        """Print to standard output (1) or standard error (2)."""
        self.output.append((stream, text.encode()))


Program = Callable[[FakeContainer], int]
"""The program of a container; returns the exit status. It runs in a thread and ends soon after `asked` is set."""


def succeed(container: FakeContainer) -> int:
    """A program that does nothing."""
    return 0


@dataclass
class DockerDaemon:
    """images: id by name. containers: all that were created, in order. calls: method and path of each request.

    logins: the Authorization header of each request that had one.

    said: messages of a load or pull before the last; by default a few. load_problem, pull_problem: the error in the
    middle of the stream of messages; empty when there is none. cut: end that stream without its end, as a daemon does
    that stops. refuse: why a container does not start; empty when it does.
    """

    socket: Path
    program: Program = succeed
    version: str = "28.2.2"
    info: Json = field(default_factory=lambda: {"Runtimes": {"nvidia": {}, "runc": {}}})
    images: dict[str, str] = field(default_factory=dict)
    containers: list[FakeContainer] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    loaded: dict[str, bytes] = field(default_factory=dict)
    load_problem: str = ""
    pull_problem: str = ""
    said: list[Json] = field(default_factory=list)
    cut: bool = False
    refuse: Callable[[FakeContainer], str] = lambda container: ""
    networks: str = "bridge"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def left(self) -> list[str]:
        """The containers that were not removed."""
        return [container.name for container in self.containers if not container.removed]

    def find(self, key: str) -> FakeContainer | None:
        """The container of this name or id."""
        return next((c for c in self.containers if key in (c.name, c.id) and not c.removed), None)

    def start(self, container: FakeContainer) -> None:
        """Run a container's program in a thread."""

        def run() -> None:
            container.code = self.program(container)
            container.ended.set()

        container.started = True
        threading.Thread(target=run, daemon=True).start()

    def load(self, archive: bytes) -> str:
        """Take an archive; the problem, or nothing."""
        if self.load_problem:
            return self.load_problem
        try:
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                self.loaded = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
        except tarfile.TarError as error:
            return str(error)
        (described,) = json.loads(self.loaded["index.json"])["manifests"]
        for item in json.loads(self.loaded["manifest.json"]):
            self.images |= dict.fromkeys(item["RepoTags"], described["digest"])
        return ""
