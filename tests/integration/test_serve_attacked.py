"""Hostile clients of `builder serve`, and hostile records of the store that it serves."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from builder.produce.image import Built
from builder.share import received
from builder.share.library import Library
from builder.share.server import Server
from builder.store.store import Store
from tests.support.engine import FakeEngine, build
from tests.support.fixtures import MakePlan
from tests.support.mirror import Mirror

MANY = 70
"""Connections: more than the server has open at the same time."""


@pytest.fixture
def built(make_plan: MakePlan, mirror: Mirror, store: Store, engine: FakeEngine) -> Built:
    return build(make_plan(), store, engine)


@pytest.fixture
def server(built: Built, store: Store) -> Iterator[Server]:
    with Server(Library(store), token="right") as started:
        yield started


def connected(server: Server, stack: ExitStack, data: bytes = b"") -> socket.socket:
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
    connection.sendall(data)
    return connection


def status(server: Server, seconds: float) -> int:
    """How a client without a token is answered."""
    connection = http.client.HTTPConnection(server.host, timeout=seconds)
    try:
        connection.request("GET", "/v2/")
        return connection.getresponse().status
    finally:
        connection.close()


def test_clients_that_send_without_end_do_not_keep_others_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received, "_REQUEST", 1.0)
    with ExitStack() as stack:
        slow = [connected(server, stack, b"GET /v2/ HTTP/1.1\r\nA: ") for _ in range(MANY)]
        stop = threading.Event()
        stack.callback(stop.set)

        def drip() -> None:
            while not stop.wait(0.1):
                for one in slow:
                    try:
                        one.sendall(b"a")
                    except OSError:
                        continue

        threading.Thread(target=drip, daemon=True).start()
        assert status(server, 5) == 401


def test_a_server_without_a_free_connection_ends_at_once(built: Built, store: Store) -> None:
    with ExitStack() as stack:
        with Server(Library(store), token="right") as server:
            for _ in range(MANY):
                connected(server, stack)
            time.sleep(0.3)
            begin = time.monotonic()
        assert time.monotonic() - begin < 2


def test_a_request_has_a_longest_size(server: Server) -> None:
    """A hundred headers of 64 kB on each of 64 connections would take 400 MB."""
    with ExitStack() as stack:
        connection = connected(server, stack, b"GET /v2/ HTTP/1.1\r\n")
        with pytest.raises(OSError):
            for number in range(100):
                connection.sendall(b"A%d: %s\r\n" % (number, b"a" * 60_000))
            connection.sendall(b"\r\n")
            assert not connection.recv(1000).startswith(b"HTTP/1.1 401")
            raise ConnectionError
        assert status(server, 5) == 401


def test_the_body_of_a_request_is_not_the_next_request(server: Server) -> None:
    inner = b"GET /v2/x HTTP/1.1\r\nHost: x\r\n\r\n"
    for header in (b"Content-Length: %d" % len(inner), b"Transfer-Encoding: chunked"):
        with ExitStack() as stack:
            connection = connected(server, stack, b"GET /v2/ HTTP/1.1\r\n%b\r\n\r\n%b" % (header, inner))
            answers = b""
            while data := connection.recv(1 << 16):
                answers += data
        assert answers.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("base", ["x\r\nSet-Cookie: a=b", "../x", "a b", ""])
def test_a_record_whose_base_is_no_tag_is_not_served(base: str, built: Built, store: Store) -> None:
    assert Library(store).offers()
    for path in (store.root / "images").glob("*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "base": base}))
    assert Library(store).offers() == []


def test_a_client_that_tries_tls_first_sees_http(server: Server) -> None:
    """docker with containerd's store tries HTTP then; it does not when the answer is that of HTTP 0.9."""
    with ExitStack() as stack:
        hello = b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03\n"
        assert connected(server, stack, hello).recv(5) == b"HTTP/"
