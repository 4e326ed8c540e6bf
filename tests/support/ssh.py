"""An `ssh` that stays on this machine: it starts the commands that `deploy` sends, and forwards ports.

Usage: ssh.py LOG SOCKET [options of ssh] -- HOST COMMAND. SOCKET: of the docker daemon of that machine.
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path


def copy(source: socket.socket, target: socket.socket) -> None:
    """Copy until the end."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def forward(listener: socket.socket, host: str, port: int) -> None:
    """Each connection to a port leads to another."""
    while True:
        near, _ = listener.accept()
        far = socket.create_connection((host, port))
        for one, other in ((near, far), (far, near)):
            threading.Thread(target=copy, args=(one, other), daemon=True).start()


def tunnel(words: list[str], command: str) -> int:
    """Forward a port while a command runs."""
    near_host, near_port, far_host, far_port = words[words.index("-R") + 1].split(":")
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((near_host, int(near_port)))
    except OSError:
        print(f"Error: remote port forwarding failed for listen port {near_port}", file=sys.stderr)
        return 255
    listener.listen()
    threading.Thread(target=forward, args=(listener, far_host, int(far_port)), daemon=True).start()
    return shell(command)


def shell(command: str) -> int:
    """Run a command on the other machine, whose ssh is this one, too."""
    folder = Path(sys.argv[1]).parent
    environ = {"PATH": f"{folder}/bin:{os.defpath}", "HOME": str(folder / "home")}
    return subprocess.run(["/bin/sh", "-c", command], env=environ, check=False).returncode


def main(log: str, daemon: str, *words: str) -> int:
    """Do what ssh would do; returns its exit status."""
    with Path(log).open("a") as file:
        file.write(" ".join(words) + "\n")
    host, command = words[words.index("--") + 1 :]
    if host == "unreachable":
        print("ssh: connect to host unreachable port 22: No route to host", file=sys.stderr)
        return 255
    if "-R" in words:
        return tunnel(list(words), command)
    if command.startswith("exec ssh "):
        return shell(command)
    dial = Path(__file__).with_name("dial_stdio.py")
    return subprocess.run([sys.executable, "-IS", str(dial), daemon], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
