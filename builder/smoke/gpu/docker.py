"""Containers of the gpu tier, on this machine or on a peer: always removed, whatever happens."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from builder.engine.containers import ContainerState
from builder.errors import EngineError
from builder.serve.spec import Container
from builder.smoke.check import CheckFailed, CheckNotRun

if TYPE_CHECKING:
    from builder.engine.daemon import Daemon, DaemonContainer

_NOT_STARTED = 125
"""The exit status of a container that docker does not make or start, as of `docker run`."""


@dataclass(frozen=True)
class CompletedContainer:
    """A container that ended. code: its exit status; None after a timeout."""

    code: int | None
    stdout: str
    stderr: str = ""


class Docker:
    """Docker's daemon. peer: the address of the machine whose daemon it is, reached through ssh."""

    def __init__(self, peer: str | None = None) -> None:
        self.peer = peer
        self._active: set[str] = set()

    @cached_property
    def _daemon(self) -> Daemon:
        # Imported here: the docker SDK takes 0.3 s.
        from builder.engine.daemon import Daemon

        try:
            return Daemon(f"ssh://{_host(self.peer)}" if self.peer else None)
        except EngineError as error:
            where = f" on {self.peer}" if self.peer else ""
            raise CheckNotRun(f"{error.what}{where}: {error.cause or error.next}") from error

    def ready(self) -> str:
        """The daemon's version. Raises CheckNotRun when it does not answer."""
        with _unable():
            return self._daemon.version()

    def identity(self, image: str) -> str | None:
        """The id of an image, None when docker has none of that name: its manifest's or its config's digest."""
        with _unable():
            return self._daemon.image_id(image)

    def run(self, container: Container, timeout: float) -> CompletedContainer:
        """Run a container to its end and remove it, whatever happens. Raises CheckNotRun when the daemon is gone."""
        named = unique(container)
        self._active.add(named.name)
        try:
            made = self._create(named)
            made.start()
            code = made.wait(timeout)
            return CompletedContainer(code, made.log(stderr=False), made.log(stdout=False))
        except EngineError as error:
            if error.id == "docker-refused":
                return CompletedContainer(_NOT_STARTED, "", error.cause)
            raise CheckNotRun(_text(error)) from error
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
            try:
                made = self._create(named)
                made.start()
            except EngineError as error:
                raise CheckFailed(f"docker does not start the container: {error.cause or error.what}") from error
            yield Running(made)
        finally:
            self.remove(named.name)

    def remove(self, name: str) -> None:
        """Remove a container, running or not, if it exists."""
        with contextlib.suppress(CheckNotRun, EngineError):
            self._daemon.remove(name)

    def _create(self, container: Container) -> DaemonContainer:
        # Imported here, as in `_daemon`.
        from builder.serve.api import create_options

        options = create_options(container, home=str(Path.home()))
        return self._daemon.create(container.name, container.image, container.command, **options)


@dataclass(frozen=True)
class Running:
    """A started container."""

    container: DaemonContainer

    def log(self) -> str:
        """Its output so far. Raises CheckNotRun when docker does not know the container."""
        with _unable():
            return self.container.log()

    def state(self) -> ContainerState:
        """Raises CheckNotRun when docker does not know the container."""
        with _unable():
            return self.container.state()

    def stop(self, patience: int) -> None:
        """Ask it to end; docker kills it after `patience` seconds. Raises CheckNotRun when the daemon is gone."""
        with _unable():
            self.container.stop(patience)


def unique(container: Container) -> Container:
    """The container under a unique name."""
    return replace(container, name=f"builder-test-{container.name}-{uuid.uuid4().hex[:8]}")


@contextlib.contextmanager
def _unable() -> Iterator[None]:
    try:
        yield
    except EngineError as error:
        raise CheckNotRun(_text(error)) from error


def _text(error: EngineError) -> str:
    return f"{error.what}: {error.cause}" if error.cause else error.what


def _host(address: str) -> str:
    """An address in the form of a URL: IPv6 in brackets."""
    return f"[{address}]" if ":" in address else address
