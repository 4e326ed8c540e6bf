"""A network between a client and a registry that breaks, cuts, damages and delays what it carries."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

_BUSY = [
    b"HTTP/1.1 500 x\r\n",
    b"HTTP/1.1 502 x\r\n",
    b"HTTP/1.1 503 x\r\nRetry-After: 0\r\n",
    b"HTTP/1.1 429 x\r\nRetry-After: 0\r\n",
]
_PIECE = 16 << 10
FAULTS = ("busy", "reset up", "reset down", "cut", "wrong byte", "slow")


@dataclass
class Network:
    """A TCP proxy on loopback. share: of connections that get a fault. done: how often each fault happened.

    busy: an answer of 429 or 5xx. reset up, reset down: the connection breaks while a request, or an answer, is sent.
    cut: it ends early, as if all was sent. wrong byte: one byte of an answer is another. slow: pieces with pauses.
    """

    backend: str
    random: random.Random
    share: float = 0.5
    host: str = ""
    done: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fault(self) -> tuple[str, int]:
        """The fault of the next connection, "" for none, and after how many bytes it happens."""
        with self.lock:
            name = self.random.choice(FAULTS) if self.random.random() < self.share else ""
            # At any byte: of the start line, of a header or of the body.
            return name, int(2 ** self.random.uniform(0, 21))


def _serve(network: Network, client: socket.socket) -> None:
    name, offset = network.fault()
    address, _, port = network.backend.partition(":")
    with client, socket.create_connection((address, int(port))) as server:
        for end in (client, server):
            end.settimeout(30)
        if name == "busy":
            network.done[name] += 1
            client.recv(_PIECE)
            with contextlib.suppress(OSError):
                client.sendall(random.choice(_BUSY) + b"Content-Length: 0\r\nConnection: close\r\n\r\n")
            return
        up = threading.Thread(target=_pump, args=(network, client, server, name == "reset up" and name, offset))
        up.start()
        _pump(network, server, client, name if name not in ("", "reset up") else "", offset)
        _close(client)
        _close(server)
        up.join()


def _pump(network: Network, source: socket.socket, target: socket.socket, fault: str | bool, offset: int) -> None:
    """Carry bytes one way until the end or the fault."""
    count = 0
    try:
        while data := source.recv(_PIECE):
            if fault == "slow":
                time.sleep(0.002)
            elif fault and count + len(data) > offset:
                network.done[str(fault)] += 1
                at = offset - count
                if fault == "wrong byte":
                    data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
                    fault = ""
                else:
                    target.sendall(data[:at])
                    if fault != "cut":
                        # Without lingering, a close is a reset.
                        for end in (source, target):
                            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    break
            target.sendall(data)
            count += len(data)
    except OSError:
        pass
    for end in (source, target):
        _close(end)


def _close(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def bad_network(backend: str, seed: int, share: float = 0.5) -> Iterator[Network]:
    """A bad network in front of a registry."""
    network = Network(backend, random.Random(seed), share)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        network.host = f"127.0.0.1:{listener.getsockname()[1]}"

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=_serve, args=(network, client), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield network
        listener.shutdown(socket.SHUT_RDWR)
