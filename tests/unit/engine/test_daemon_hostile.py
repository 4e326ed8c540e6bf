"""Answers of a daemon that is not docker's, as the one of another machine may be: bounded, and never a traceback."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from builder.engine import answers, httpread
from builder.engine.daemon import Daemon
from builder.errors import EngineError
from tests.support.errors import fails
from tests.support.hostile import limit

VERSION = b'{"Version": "28.2.2", "ApiVersion": "1.47", "MinAPIVersion": "1.24"}'
NAME = "x@sha256:" + "a" * 64
Pieces = Iterator[bytes]


def whole(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


def endless(piece: bytes, status: bytes = b"200 OK") -> Pieces:
    """A chunked answer without end."""
    yield b"HTTP/1.1 " + status + b"\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    while True:
        yield b"%x\r\n%b\r\n" % (len(piece), piece)


def one_chunk(piece: bytes) -> Pieces:
    """One chunk of a terabyte."""
    yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % (1 << 40)
    while True:
        yield piece


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Callable[[bytes, Callable[[], Any]], str]]:
    """Makes a daemon that gives an answer to requests with these words in their first line; its address."""
    listeners: list[socket.socket] = []

    def serve(connection: socket.socket, words: bytes, answer: Callable[[], Any]) -> None:
        with connection, contextlib.suppress(OSError):
            while request := connection.recv(1 << 16):
                given = answer() if words in request.split(b"\r\n")[0] else whole(VERSION)
                for piece in [given] if isinstance(given, bytes) else given:
                    connection.sendall(piece)

    def make(words: bytes, answer: Callable[[], Any]) -> str:
        listener = socket.socket(socket.AF_UNIX)
        listeners.append(listener)
        path = tmp_path / f"{len(listeners)}.sock"
        listener.bind(str(path))
        listener.listen()

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection, words, answer), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return f"unix://{path}"

    yield make
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


ACTS: dict[bytes, Callable[[Daemon], object]] = {
    b"/images/x/json": lambda daemon: daemon.image_id("x"),
    b"/images/json": lambda daemon: daemon.image_names(),
    b"/images/create": lambda daemon: daemon.pull(NAME, login={"username": "a", "password": "b"}),
    b"/images/load": lambda daemon: daemon.load(lambda out: out.write(b"x")),
}
REFUSED = ("docker-refused", "docker-unreachable")
"""The second one for what requests cannot decode."""
ENDLESS = {
    "text": lambda: endless(b"x" * 60_000),
    "error": lambda: endless(b"x" * 60_000, b"500 Oh"),
    "chunk": lambda: one_chunk(b"x" * 60_000),
}


@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.parametrize("path", ACTS, ids=bytes.decode)
def test_an_answer_without_end(
    path: bytes, kind: str, hostile: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_LARGEST", 2 << 20)
    tracemalloc.start()
    try:
        with Daemon(hostile(path, ENDLESS[kind])) as daemon, fails(EngineError, "docker-refused"):
            ACTS[path](daemon)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("path", [b"/images/x/json", b"/images/json"], ids=bytes.decode)
def test_an_answer_of_many_small_values(path: bytes, hostile: Callable[..., str]) -> None:
    """Each takes thirty times as many bytes when it is parsed."""
    with Daemon(hostile(path, lambda: whole(b"[" + b"[[]]," * 2_000_000 + b"[]]"))) as daemon:
        with fails(EngineError, "docker-refused") as caught:
            ACTS[path](daemon)
        assert "longer than 8 MB" in caught.value.cause


@pytest.mark.parametrize(
    "body", [b"[]", b"3", b'"x"', b"null", b"{}", b"[" * 500, b"[3]", b"\xff", b'{"Id": []}'], ids=repr
)
@pytest.mark.parametrize("path", ACTS, ids=bytes.decode)
def test_an_answer_of_another_form(path: bytes, body: bytes, hostile: Callable[..., str]) -> None:
    with Daemon(hostile(path, lambda: whole(body))) as daemon:
        try:
            found = ACTS[path](daemon)
        except EngineError as error:
            assert error.id in REFUSED
        else:
            assert found is None or isinstance(found, str | frozenset)


@pytest.mark.parametrize("name", ["Runtimes", "DiscoveredDevices", "DriverStatus"])
@pytest.mark.parametrize("value", [b"5", b"true", b'"nvidia"'], ids=bytes.decode)
def test_settings_of_another_form(name: str, value: bytes, hostile: Callable[..., str]) -> None:
    body = b'{"%s": %s}' % (name.encode(), value)
    with Daemon(hostile(b"/info", lambda: whole(body))) as daemon, fails(EngineError, "docker-refused"):
        daemon.info()


def test_a_container_of_another_form(hostile: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(*_: object, **__: object) -> None:
        raise Exception("Can't create Container from [3]")

    monkeypatch.setattr("docker.models.containers.ContainerCollection.create", prepare)
    with Daemon(hostile(b"/nothing", bytes)) as daemon, fails(EngineError, "docker-refused"):
        daemon.create("a", "b", [])


@pytest.mark.parametrize("body", [b"[]", b"3", b'{"ApiVersion": "../x"}', b'{"ApiVersion": [1]}', b"{" * 5000], ids=len)
def test_a_version_of_another_form(body: bytes, hostile: Callable[..., str]) -> None:
    with pytest.raises(EngineError) as caught:
        Daemon(hostile(b"/version", lambda: whole(body)))
    assert caught.value.id in REFUSED


def test_a_name_that_is_no_id_makes_no_line_of_a_message(hostile: Callable[..., str]) -> None:
    body = whole(json.dumps({"Id": "x\n  next:  sh evil"}).encode())
    with Daemon(hostile(b"/images/x/json", lambda: body)) as daemon, fails(EngineError, "docker-refused") as caught:
        daemon.image_id("x")
    assert "evil" not in str(caught.value)


@pytest.mark.parametrize("path", [b"/version", b"/images/x/json"], ids=bytes.decode)
def test_an_error_makes_no_line_of_a_message(path: bytes, hostile: Callable[..., str]) -> None:
    body = json.dumps({"message": "x" * 5000 + "\n  next:  sh evil"}).encode()
    answer = whole(body).replace(b"200 OK", b"500 Oh")
    with pytest.raises(EngineError) as caught, Daemon(hostile(path, lambda: answer)) as daemon:
        daemon.image_id("x")
    assert "\n" not in caught.value.cause and len(caught.value.cause) < 1000


def redirects() -> Pieces:
    yield b"HTTP/1.1 307 There\r\nLocation: /x\r\nTransfer-Encoding: chunked\r\n\r\n"
    for _ in range(100):
        yield b"%x\r\n%b\r\n" % (1 << 20, bytes(1 << 20))
    yield b"0\r\n\r\n"


@pytest.mark.parametrize("path", ACTS, ids=bytes.decode)
def test_the_body_of_a_redirect_is_not_read(path: bytes, hostile: Callable[..., str]) -> None:
    tracemalloc.start()
    try:
        with Daemon(hostile(path, redirects)) as daemon, fails(EngineError, "docker-refused"):
            ACTS[path](daemon)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


def trailers() -> Pieces:
    yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    while True:
        yield b"A: b\r\n"


def drops() -> Pieces:
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
    while True:
        yield b" "
        time.sleep(0.01)


def interim() -> Pieces:
    while True:
        yield b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("answer", [trailers, drops, interim])
def test_an_answer_that_goes_on(
    answer: Callable[[], Pieces], hostile: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte restarts the time limit of the socket."""
    monkeypatch.setattr(httpread, "_SECONDS", 0.2)
    monkeypatch.setattr(answers, "_SECONDS", 0.2)
    monkeypatch.setattr("builder.engine.daemon.TIMEOUT", 0.5)
    with limit(20), Daemon(hostile(b"/images/x/json", answer)) as daemon, fails(EngineError, "docker-timeout"):
        daemon.image_id("x")
