"""Signals to a running command, and servers that never answer."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}


@contextlib.contextmanager
def silent(drip: bytes = b"") -> Iterator[tuple[str, threading.Semaphore]]:
    """HOST:PORT of a server that accepts connections and never answers, and a semaphore that counts connections.

    drip: what it sends, a byte each 0.3 seconds.
    """
    asked, kept = threading.Semaphore(0), []
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:

        def send(connection: socket.socket) -> None:
            with contextlib.suppress(OSError):
                for byte in drip:
                    connection.sendall(bytes([byte]))
                    time.sleep(0.3)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    kept.append(listener.accept()[0])
                    asked.release()
                    threading.Thread(target=send, args=(kept[-1],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", asked
        # A thread in accept(2) does not see that the socket is closed.
        listener.shutdown(socket.SHUT_RDWR)
    for connection in kept:
        connection.close()


def children(process: subprocess.Popen[str]) -> list[str]:
    """The processes that a process started, and theirs."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = dict(line.split() for line in listed.splitlines())
    found = [str(process.pid)]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def interrupt(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal; the process must end soon, with its exit code and all its children."""
    below = children(process)
    start = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    # Two seconds on a machine that does nothing else.
    assert (process.returncode, time.monotonic() - start < 6) == (SIGNALS[number], True), err
    assert "Traceback" not in err and "Exception" not in err, err
    time.sleep(0.2)
    assert [pid for pid in below if _runs(pid)] == []


def _runs(pid: str) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
