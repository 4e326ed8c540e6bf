"""A proxy in front of a registry that breaks requests at random: the same faults for the same seed."""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from random import Random

from tests.support.loopback import listening

FAULTS = ("none", "500", "503", "429", "reset", "reset upload", "truncate", "wrong byte", "lost answer", "slow")
_PIECE = 4096


@dataclass
class Faulty:
    """rate: the share of requests that are broken. done: how often each fault was planted."""

    backend: str
    random: Random
    rate: float = 0.2
    done: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def choose(self) -> tuple[str, float]:
        """The fault of the next request, and a number for it from 0 to 1."""
        with self.lock:
            fault = self.random.choice(FAULTS[1:]) if self.random.random() < self.rate else "none"
            self.done[fault] += 1
            return fault, self.random.random()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    faulty: Faulty

    def do_GET(self) -> None:
        fault, share = self.faulty.choose()
        size = int(self.headers.get("Content-Length") or 0)
        if fault == "slow":
            time.sleep(0.05 * share)
        if fault == "reset":
            self._reset()
            return
        if fault == "reset upload":
            self.rfile.read(int(size * share))
            self._reset()
            return
        body = self.rfile.read(size)
        if fault in ("500", "503", "429"):
            self._answer(int(fault), {"Retry-After": "0"}, b"")
            return
        connection = http.client.HTTPConnection(self.faulty.backend, timeout=20)
        connection.request(self.command, self.path, body or None, dict(self.headers.items()))
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        if fault == "lost answer":
            self._reset()
            return
        if fault == "wrong byte" and data:
            place = int((len(data) - 1) * share)
            data = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        headers = {name: value for name, value in answer.headers.items() if name.lower() != "connection"}
        if self.command != "HEAD":
            headers["Content-Length"] = str(len(data))
        cut = int(len(data) * share) if fault == "truncate" else None
        self._answer(answer.status, headers, data[:cut])
        if cut is not None:
            self._reset()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response_only(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            for start in range(0, len(data), _PIECE):
                self.wfile.write(data[start : start + _PIECE])
        self.wfile.flush()

    def _reset(self) -> None:
        """End the connection with a reset."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.shutdown(socket.SHUT_RD)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def faulty_proxy(backend: str, seed: int) -> Iterator[tuple[str, Faulty]]:
    """HOST:PORT of a proxy in front of a registry, and its faults."""
    faulty = Faulty(backend, Random(seed))
    with listening(_Handler, faulty=faulty) as host:
        yield host, faulty
