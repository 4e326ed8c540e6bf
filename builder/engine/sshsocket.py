"""A local socket in front of a docker daemon behind ssh (DOCKER_HOST=ssh://), through the ssh command."""

from __future__ import annotations

import contextlib
import resource
import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15")
"""ssh without prompts and with a short time limit. A machine that was unplugged is noticed within a minute."""
_LONGEST = 1 << 20
"""Bytes that ssh may write to a file: what the other machine writes to its standard error goes there."""


def ssh_words(url: str) -> list[str]:
    """The options of ssh that name a machine. url: ssh://[USER@]HOST[:PORT]. Raises ValueError for no such port."""
    parts = urlsplit(url)
    words = ["-l", parts.username] if parts.username else []
    words += ["-p", str(parts.port)] if parts.port else []
    return [*words, "--", str(parts.hostname)]


def ssh_argv(url: str, command: str, options: Sequence[str] = (), via: str | None = None) -> list[str]:
    """The ssh command that runs a shell command on a machine. url and via: as in `ssh_words`.

    via: the machine that starts this ssh, with its names and keys. Raises ValueError.
    """
    argv = [*SSH, *options, *ssh_words(url), command]
    return argv if via is None else ssh_argv(via, f"exec {shlex.join(argv)}")


def start_ssh(words: Sequence[str], stdin: int, stdout: int, stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start ssh in a session of its own, which Ctrl-C does not reach. stderr: a file. Raises OSError."""
    process = subprocess.Popen(words, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True)
    with contextlib.suppress(OSError):  # it has ended already
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (_LONGEST, _LONGEST))
    return process


class SshSocket:
    """Each connection to the socket is one `ssh HOST docker system dial-stdio`, as in the docker command."""

    def __init__(self, host: str, via: str | None = None) -> None:
        """host: ssh://[USER@]HOST[:PORT]. via: likewise, as in `ssh_argv`."""
        self._argv = ssh_argv(host, "docker system dial-stdio", via=via)
        self._folder = Path(tempfile.mkdtemp(prefix="builder-ssh-"))
        self._log = self._folder / "ssh.log"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._folder / "docker.sock"))
        self._listener.listen()
        self._processes: list[subprocess.Popen[bytes]] = []
        # Also runs when the interpreter exits: ssh is in a session of its own, which Ctrl-C does not reach.
        self.close = weakref.finalize(self, _close, self._listener, self._processes, self._folder)
        """Close the socket and end ssh."""
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        """The address of the socket."""
        return f"unix://{self._folder / 'docker.sock'}"

    def problem(self) -> str:
        """The last line that ssh printed; empty when it printed none."""
        with contextlib.suppress(OSError):
            lines = self._log.read_text("utf-8", errors="replace").strip().splitlines()
            return lines[-1][:300] if lines else ""
        return ""

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, self._log.open("ab") as log:
                try:
                    # Ctrl-C must not end ssh before the containers are removed.
                    process = start_ssh(self._argv, connection.fileno(), connection.fileno(), log)
                except OSError as error:
                    log.write(f"{self._argv[0]}: {error.strerror}\n".encode())
                else:
                    self._processes.append(process)


def _close(listener: socket.socket, processes: list[subprocess.Popen[bytes]], folder: Path) -> None:
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for process in processes:
        process.kill()
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)
