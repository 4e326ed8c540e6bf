"""A server that answers without end, in giant lines or with anything: an error in time, with little memory."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from builder.bench import server, stream
from builder.bench.server import Server
from builder.errors import NetworkError
from builder.smoke.check import CheckFailed
from builder.smoke.gpu.client import Client
from tests.support.nightly import NIGHTLY

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
EVENT = b'data: {"choices": [{"delta": {"content": "x"}}]}\n'
ENDLESS = {
    "a giant line": (b"\r\ndata: ", b"x" * (1 << 20)),
    "events": (b"\r\n", EVENT * 10_000),
    "a giant chunk": (b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", b"x" * (1 << 20)),
}


@contextlib.contextmanager
def serving(head: bytes, more: bytes = b"", pause: float = 0.0) -> Iterator[str]:
    """A server that answers every request with `head`, and then `more` without end, with pauses in seconds."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                connection.recv(1 << 20)
                connection.sendall(HEAD + head)
                while more and not ended.is_set():
                    connection.sendall(more)
                    time.sleep(pause)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()


@pytest.mark.parametrize(("head", "more"), ENDLESS.values(), ids=ENDLESS)
def test_an_answer_without_end_is_an_error(head: bytes, more: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    if not NIGHTLY:
        monkeypatch.setattr(stream, "_MOST", 8 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with serving(head, more) as url:
        with pytest.raises(NetworkError):
            Server(url, model="m").ask("question", 8)
        with pytest.raises(NetworkError):
            Server(url)
        client = Client(url, "m", patience=20)
        for call in (client.stream, client.chat, client.get):
            with pytest.raises(CheckFailed):
                call("/x")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10


def test_an_answer_of_many_small_values_takes_little_memory() -> None:
    """Each takes thirty times as many bytes when it is parsed."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with serving(b"\r\n[" + (b"[[]]," * 200_000 + b"\n") * 20 + b"[]]") as url:
        with pytest.raises(NetworkError):
            Server(url)
        with pytest.raises(CheckFailed):
            Client(url, "m", patience=20).json("/x")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10


def test_requests_at_once_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each held its last event: eight of `bench --concurrency 8` took 1.2 GB."""
    monkeypatch.setattr(server, "TIMEOUT", 8.0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with serving(b'\r\ndata: {"choices": [' + b"{}," * 300_000 + b"{}]}\n", b" ", 0.2) as url:
        asked = Server(url, model="m")

        def ask(_: int) -> None:
            with pytest.raises(NetworkError):
                asked.ask("question", 8)

        with ThreadPoolExecutor(24) as pool:
            assert len(list(pool.map(ask, range(24)))) == 24
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10


def test_an_answer_that_drips_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TIMEOUT", 1.0)
    start = time.monotonic()
    with serving(b"\r\n", b" ", 0.05) as url, pytest.raises(NetworkError):
        Server(url, model="m").ask("question", 8)
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    "body",
    [
        b"data: [1]\n",
        b"data: " + b"[" * 100_000 + b"\n",
        b'data: {"choices": [5]}\n',
        b'data: {"choices": 5}\n',
        EVENT + b'data: {"usage": {"prompt_tokens": "many"}}\n',
        EVENT + b'data: {"usage": [5]}\n',
        EVENT + b'data: {"usage": {"prompt_tokens": 1e999, "completion_tokens": 1}}\n',
    ],
)
def test_an_answer_of_another_form_is_an_error(body: bytes) -> None:
    with serving(b"\r\n" + body) as url, pytest.raises(NetworkError):
        Server(url, model="m").ask("question", 8)
