"""A daemon that begins an answer and says no more: a pull ends."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.engine.daemon import Daemon
from builder.errors import EngineError
from tests.support.errors import fails
from tests.support.hostile import limit

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
VERSION = b'{"Version": "28.2.2", "ApiVersion": "1.47", "MinAPIVersion": "1.24"}'
BEGUN = b'Transfer-Encoding: chunked\r\n\r\n12\r\n{"status":"begun"}\r\n'


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[str]:
    """The address of a daemon that answers a pull with one message, and then nothing."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "docker.sock"))
    listener.listen()

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while request := connection.recv(1 << 16):
                if b"/images/create" in request.split(b"\r\n")[0]:
                    connection.sendall(HEAD + BEGUN)
                else:
                    connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(VERSION) + VERSION)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"unix://{tmp_path}/docker.sock"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def test_a_pull_that_says_no_more_ends(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builder.engine.daemon.TRANSFER", 0.5)
    with limit(10), Daemon(silent) as daemon, fails(EngineError, "docker-timeout"):
        daemon.pull("x@sha256:" + "a" * 64, login={"username": "a", "password": "b"})
