"""Read access to a machine for checks: commands, files, free disk space, docker's daemon. Nothing is changed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from builder.engine.containers import ListedContainer
from builder.engine.process import output


@dataclass(frozen=True)
class Outcome:
    """The exit status and standard output of a command, with standard error when it failed."""

    code: int
    text: str


def answer(words: Sequence[str], timeout: float) -> Outcome | None:
    """The outcome of a command; None when it does not exist, takes longer than `timeout` seconds or prints too much."""
    try:
        done = output(words, timeout=timeout)
    except (OSError, subprocess.SubprocessError):
        return None
    return Outcome(done.status, done.text + (done.errors if done.status else ""))


class Host(Protocol):
    """A machine. `run` and `read` return None for a command or file that does not exist."""

    def run(self, *words: str) -> Outcome | None: ...

    def read(self, path: str) -> str | None: ...

    def glob(self, pattern: str) -> tuple[str, ...]: ...

    def free_disk(self, path: str) -> int | None: ...

    def env(self, name: str) -> str | None: ...

    def docker_info(self) -> Mapping[str, Any]: ...

    def containers(self) -> Sequence[ListedContainer]: ...


class ThisHost:
    """The machine that this process runs on."""

    def run(self, *words: str) -> Outcome | None:
        return answer(words, 20)

    def read(self, path: str) -> str | None:
        try:
            return Path(path).read_text("utf-8", errors="replace")
        except OSError:
            return None

    def glob(self, pattern: str) -> tuple[str, ...]:
        return tuple(sorted(str(path) for path in Path("/").glob(pattern.lstrip("/"))))

    def free_disk(self, path: str) -> int | None:
        try:
            return shutil.disk_usage(path).free
        except OSError:
            return None

    def env(self, name: str) -> str | None:
        return os.environ.get(name)

    def docker_info(self) -> Mapping[str, Any]:
        """The daemon's information, as of `docker info`. Raises EngineError when it does not answer."""
        # Imported here: the docker SDK takes 0.3 s, and most commands ask the host for other things.
        from builder.engine.daemon import Daemon

        with Daemon() as daemon:
            return daemon.info()

    def containers(self) -> Sequence[ListedContainer]:
        """The running containers of docker's daemon. Raises EngineError when it does not answer."""
        # Imported here, as in `docker_info`.
        from builder.engine.daemon import Daemon

        with Daemon() as daemon:
            return daemon.containers()
