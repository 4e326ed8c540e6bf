from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from builder.engine.buildah import _own_processes
from builder.engine.interface import BuildRequest
from tests.support.docker_daemon import docker_daemon

RECORD = """#!/bin/sh
{ /usr/bin/flock 1; printf '%s\\0' "${0##*/}" "$@"; echo; } >> "$LOG"
"""


@dataclass
class Programs:
    """Shell scripts in place of programs: nothing else is on PATH. Each call is recorded."""

    folder: Path
    socket: Path
    stack: ExitStack

    def add(self, name: str, body: str = "") -> None:
        """A program that records its call and then runs `body`."""
        path = self.folder / name
        path.write_text(RECORD.replace("$LOG", str(self.folder / "log")) + body + "\n")
        path.chmod(0o755)

    def calls(self, name: str) -> list[list[str]]:
        """The arguments of every call of a program."""
        log = self.folder / "log"
        lines = log.read_bytes().split(b"\0\n") if log.exists() else []
        calls = [[word.decode() for word in line.split(b"\0")] for line in lines if line]
        return [words[1:] for words in calls if words[0] == name]

    def docker(self, *, daemon: bool = True, buildx: bool = True, build: str = "exit 0") -> None:
        """A docker command, and its daemon; `build` is what `docker buildx build` runs."""
        version = "echo 'github.com/docker/buildx v0.13.1 788433953af10f2a'" if buildx else "exit 1"
        if daemon:
            self.stack.enter_context(docker_daemon(self.socket))
        self.add(
            "docker",
            f"""case "$1 $2" in
"buildx version") {version} ;;
"buildx build") {build} ;;
*) exit 64 ;;
esac""",
        )

    def buildah(self, *, version: str = "buildah version 1.28.2 (image-spec 1.0.2-dev)", build: str = "exit 0") -> None:
        """A buildah, and an unshare that runs its command."""
        self.add("buildah", f"if [ \"$1\" = --version ]; then echo '{version}'; exit 0; fi\n{build}")
        self.add("unshare", 'while [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"')
        self.add("sh", 'shift 6\nexec "$@"')
        self.add("true")
        self.add("mount")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Programs]:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("BUILDER_ENGINE", raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    _own_processes.cache_clear()
    with ExitStack() as stack:
        yield Programs(folder, tmp_path / "docker.sock", stack)
    _own_processes.cache_clear()


@pytest.fixture
def request_for(tmp_path: Path) -> Callable[..., BuildRequest]:
    """A build request; keywords replace its fields."""

    def made(**more: object) -> BuildRequest:
        work = tmp_path / "work"
        (work / "context").mkdir(parents=True, exist_ok=True)
        (work / "Dockerfile").write_text("FROM scratch AS one\n")
        fields: dict[str, object] = {
            "dockerfile": work / "Dockerfile",
            "target": "one",
            "context": work / "context",
            "platform": "linux/arm64",
            "jobs": 7,
            "work": work,
        }
        return BuildRequest(**{**fields, **more})  # type: ignore[arg-type]

    return made


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
