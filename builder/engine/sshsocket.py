"""A local socket in front of a docker daemon behind ssh (DOCKER_HOST=ssh://), through the ssh command."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import threading
import weakref
from pathlib import Path
from urllib.parse import urlsplit

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
"""ssh without prompts and with a short time limit."""


class SshSocket:
    """Each connection to the socket is one `ssh HOST docker system dial-stdio`, as in the docker command."""

    def __init__(self, host: str) -> None:
        """host: ssh://[USER@]HOST[:PORT]."""
        parts = urlsplit(host)
        self._argv = [*SSH]
        self._argv += ["-l", parts.username] if parts.username else []
        self._argv += ["-p", str(parts.port)] if parts.port else []
        self._argv += ["--", str(parts.hostname), "docker system dial-stdio"]
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
                    # In a session of its own: Ctrl-C must not end ssh before the containers are removed.
                    process = subprocess.Popen(
                        self._argv,
                        stdin=connection.fileno(),
                        stdout=connection.fileno(),
                        stderr=log,
                        start_new_session=True,
                    )
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
