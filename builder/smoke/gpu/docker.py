"""Docker on this machine or on a peer: containers that are always stopped and removed."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from builder.serve.formats import docker_words
from builder.serve.spec import Container
from builder.smoke.check import CheckFailed, CheckNotRun

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")


@dataclass(frozen=True)
class Done:
    """How a command ended. code: None when it ran out of time. out: standard output; said: standard error."""

    code: int | None
    out: str
    said: str = ""


@dataclass(frozen=True)
class State:
    """Of a container, as docker tells it."""

    running: bool
    code: int
    out_of_memory: bool


class Docker:
    """The docker command. peer: run it there, through ssh."""

    def __init__(self, peer: str | None = None) -> None:
        self.peer = peer
        self._active: set[str] = set()

    def __call__(self, *words: str, timeout: float = 60) -> Done:
        """Run `docker WORDS`. Raises CheckNotRun when docker (or ssh) is not installed."""
        argv = ["docker", *words]
        if self.peer:
            argv = [*SSH, self.peer, shlex.join(argv)]
        try:
            # In a session of its own: Ctrl-C is for the program that removes the container.
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise CheckNotRun(f"{argv[0]} is not installed") from error
        try:
            out, said = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, said = process.communicate()
            return Done(None, out, said)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return Done(process.returncode, out, said)

    def ready(self) -> str:
        """The daemon's version. Raises CheckNotRun when it does not answer."""
        done = self("version", "--format", "{{.Server.Version}}", timeout=30)
        if done.code != 0 or not done.out.strip():
            where = f" on {self.peer}" if self.peer else ""
            raise CheckNotRun(f"docker's daemon does not answer{where}: {_last(done) or 'no reason given'}")
        return done.out.strip()

    def identity(self, image: str) -> str | None:
        """The id of an image, None when docker has none of that name: its manifest's or its config's digest."""
        done = self("image", "inspect", "--format", "{{.Id}}", image)
        return done.out.strip() if done.code == 0 else None

    def run(self, container: Container, timeout: float) -> Done:
        """Run a container to its end and remove it, whatever happens."""
        named = unique(container)
        self._active.add(named.name)
        try:
            return self(*_words(named, detach=False), timeout=timeout)
        finally:
            self.remove(named.name)
            self._active.discard(named.name)

    def abandon(self) -> None:
        """Remove the containers that other threads wait for; Ctrl-C reaches only one thread."""
        for name in sorted(self._active):
            self.remove(name)

    @contextlib.contextmanager
    def started(self, container: Container) -> Iterator[Running]:
        """A container in the background, removed at the end. Raises CheckFailed when docker does not start it."""
        named = unique(container)
        try:
            done = self(*_words(named, detach=True), timeout=300)
            if done.code != 0:
                raise CheckFailed(f"docker does not start the container: {_last(done)}")
            yield Running(self, named)
        finally:
            self.remove(named.name)

    def remove(self, name: str) -> None:
        """Remove a container, running or not; that there is none is no error."""
        with contextlib.suppress(CheckNotRun):
            self("rm", "--force", "--volumes", name, timeout=120)


@dataclass(frozen=True)
class Running:
    """A started container."""

    docker: Docker
    container: Container

    def log(self) -> str:
        """All it printed so far."""
        done = self.docker("logs", self.container.name, timeout=120)
        return done.out + done.said

    def state(self) -> State:
        """Raises CheckNotRun when docker does not know the container."""
        done = self.docker("inspect", "--format", "{{json .State}}", self.container.name)
        try:
            found = json.loads(done.out)
            return State(bool(found["Running"]), int(found["ExitCode"]), bool(found.get("OOMKilled")))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckNotRun(f"docker does not know {self.container.name}: {_last(done)}") from error

    def stop(self, patience: int) -> Done:
        """Ask it to end; docker kills it after `patience` seconds."""
        return self.docker("stop", "-t", str(patience), self.container.name, timeout=patience + 60)


def unique(container: Container) -> Container:
    """The container under a name that no other has."""
    return replace(container, name=f"builder-test-{container.name}-{uuid.uuid4().hex[:8]}")


def _words(container: Container, *, detach: bool) -> Sequence[str]:
    words = docker_words(container, detach=detach, restart=False, home=str(Path.home()))
    return words[1:]


def _last(done: Done) -> str:
    lines = (done.said.strip() or done.out.strip()).splitlines()
    return lines[-1][:300] if lines else ""
