"""Tunnel: a port of another machine's loopback that leads to a port of this one, through the ssh command."""

from __future__ import annotations

import re
import subprocess
import tempfile
from typing import IO
from urllib.parse import urlsplit

from builder.engine.sshsocket import SSH
from builder.errors import EngineError, UsageError
from builder.share.parcel import PORT

_HOST = re.compile(
    r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}@)?(?:[A-Za-z0-9][A-Za-z0-9._-]{0,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?"
)
_PORTS = range(PORT, PORT + 5)
_ALIVE = ("-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4")
"""A machine that was unplugged is noticed within a minute."""


def checked_host(host: str) -> str:
    """[USER@]HOST[:PORT], also a Host of ssh's configuration. Raises UsageError."""
    try:
        if not _HOST.fullmatch(host):
            raise ValueError
        ssh_words(host)  # a port beyond 65535, or an address that is none
    except ValueError:
        raise UsageError(
            f"not a machine: {host[:100]!a}", id="deploy-host-invalid", next="write [USER@]HOST[:PORT], as for ssh"
        ) from None
    return host


def ssh_words(host: str) -> list[str]:
    """The options of ssh that name a machine. host: [USER@]HOST[:PORT]."""
    parts = urlsplit(f"ssh://{host}")
    words = ["-l", parts.username] if parts.username else []
    words += ["-p", str(parts.port)] if parts.port else []
    return [*words, "--", str(parts.hostname)]


class Tunnel:
    """While its `with` block runs, 127.0.0.1:`remote` of a machine leads to a port of this one.

    host: [USER@]HOST[:PORT]. Raises EngineError when ssh cannot.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.remote = 0
        self._broken = False

    @property
    def is_broken(self) -> bool:
        """Whether ssh has ended by itself."""
        return self._broken

    def __enter__(self) -> Tunnel:
        problem = ""
        for self.remote in _PORTS:
            # Another deployment to this machine may hold a port.
            problem = self._start()
            if not problem:
                return self
            if "forward" not in problem:
                break
        raise EngineError(
            "ssh makes no tunnel",
            id="deploy-tunnel-failed",
            where=self._host,
            cause=problem,
            next=f"ssh {self._host} docker version",
        )

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._broken = self._process.poll() is not None
            self._process.kill()
            self._process.communicate()

    def _start(self) -> str:
        """Start ssh; returns what it printed when it failed. It has forwarded the port when the command runs there."""
        forward = ["-R", f"127.0.0.1:{self.remote}:127.0.0.1:{self._port}"]
        with tempfile.TemporaryFile() as errors:
            # `cat` ends with the connection, so that nothing stays behind there.
            words = [*SSH, *_ALIVE, *forward, *ssh_words(self._host), "echo ready; exec cat >/dev/null"]
            try:
                self._process = subprocess.Popen(
                    words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                )
            except OSError as error:
                return f"ssh: {error.strerror}"
            output: IO[bytes] | None = self._process.stdout
            assert output is not None
            # A shell's start-up file may print lines of its own before.
            for _ in range(50):
                line = output.readline(1000)
                if line.strip() == b"ready":
                    return ""
                if not line:
                    break
            self._process.kill()
            self._process.communicate()
            errors.seek(0)
            lines = errors.read(4096).decode("utf-8", "replace").strip().splitlines()
            return lines[-1][:300] if lines else "it ended without a message"
