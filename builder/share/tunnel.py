"""Tunnel: a port of another machine's loopback that leads to a port of this one, through the ssh command."""

from __future__ import annotations

import re
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from typing import IO

from builder.engine.sshsocket import ssh_argv, ssh_words, start_ssh
from builder.errors import EngineError, UsageError
from builder.share import PORT

_HOST = re.compile(
    r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}@)?(?:[A-Za-z0-9][A-Za-z0-9._-]{0,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?"
)
PORTS = range(PORT, PORT + 5)
_WAIT = "echo ready; exec cat >/dev/null"
"""`cat` ends with the connection, so that nothing stays behind there."""
_SECONDS = 60.0
"""For the connection, and for what the other machine's shell does first."""


def checked_host(host: str) -> str:
    """[USER@]HOST[:PORT], also a Host of ssh's configuration. Raises UsageError."""
    try:
        if not _HOST.fullmatch(host):
            raise ValueError
        ssh_words(f"ssh://{host}")  # a port beyond 65535, or an address that is none
    except ValueError:
        raise UsageError(
            f"not a machine: {host[:100]!a}", id="deploy-host-invalid", next="write [USER@]HOST[:PORT], as for ssh"
        ) from None
    return host


class Tunnel:
    """While its `with` block runs, 127.0.0.1:`remote` of a machine leads to a port of this one.

    host: [USER@]HOST[:PORT]. via: a machine that starts ssh instead of this one, and to whose port it leads. command:
    for the machine's shell, prints `ready`. ports: one of these is `remote`. Raises EngineError when ssh cannot.
    """

    def __init__(
        self, host: str, port: int, via: str | None = None, command: str = _WAIT, ports: Sequence[int] = PORTS
    ) -> None:
        self._host = host
        self._port = port
        self._via = via
        self._command = command
        self._ports = ports
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._ended = False
        self.remote = 0
        self.printed = ""
        """The last line that ssh and the command printed to standard error, when it has ended."""

    @property
    def is_broken(self) -> bool:
        """Whether ssh has ended by itself."""
        return self._ended or (self._process is not None and self._process.poll() is not None)

    @property
    def streams(self) -> tuple[IO[bytes], IO[bytes]]:
        """Standard input and output of the command."""
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def cut(self) -> None:
        """End the connection, for good: who waits for the other machine goes on."""
        self._ended = True
        if (process := self._process) is not None:
            process.kill()

    def __enter__(self) -> Tunnel:
        problem = ""
        for port in self._ports:
            # Another deployment to this machine may hold a port.
            self.remote = port
            problem = self._start()
            if not problem:
                return self
            if self._ended or "forward" not in problem:
                break
        raise EngineError(
            "ssh makes no tunnel",
            id="deploy-tunnel-failed",
            where=self._host,
            cause=problem,
            next=f"ssh {self._via} ssh {self._host} true" if self._via else f"ssh {self._host} docker version",
        )

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._ended = self._ended or self._process.poll() is not None
            self._end()

    def _start(self) -> str:
        """Start ssh; returns what it printed when it failed. It has forwarded the port when the command runs there."""
        forward = ["-o", "ExitOnForwardFailure=yes", "-R", f"127.0.0.1:{self.remote}:127.0.0.1:{self._port}"]
        via = f"ssh://{self._via}" if self._via else None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (`_end` closes it)
        try:
            argv = ssh_argv(f"ssh://{self._host}", self._command, forward, via)
            self._process = start_ssh(argv, subprocess.PIPE, subprocess.PIPE, self._errors)
        except OSError as error:
            self._errors.close()
            return f"ssh: {error.strerror}"
        output = self.streams[1]
        late = threading.Timer(_SECONDS, self._process.kill)
        late.start()
        try:
            # A shell's start-up file may print lines of its own before.
            for _ in range(50):
                line = output.readline(1000)
                if line.strip() == b"ready":
                    return ""
                if not line:
                    break
        finally:
            late.cancel()
        self._end()
        return self.printed

    def _end(self) -> None:
        assert self._process is not None and self._errors is not None
        self._process.kill()
        self._process.communicate()
        self._process = None
        with self._errors as errors:
            errors.seek(0)
            lines = errors.read(4096).decode("utf-8", "replace").strip().splitlines()
        self.printed = lines[-1][:300] if lines else "it ended without a message"
