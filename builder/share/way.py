"""Ways by which the docker of another machine reaches an image of this one: a tunnel each, or a relay for several."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread, Timer

from builder.digest import Digest
from builder.errors import EngineError
from builder.jsontext import parse_json
from builder.oci.manifest import parse_manifest
from builder.share import PORT, relay
from builder.share.parcel import Counter, Parcel, serving
from builder.share.server import USER
from builder.share.tunnel import PORTS, Tunnel
from builder.store.store import Store

_BEAT = 15.0
"""Seconds; the relay ends when it hears nothing for four times as long."""
_LONGEST = 1 << 20
_ANSWER = 120.0
"""Bytes of an answer of the relay, and seconds: it may wait for its folder for 70."""
_START = (
    'exec python3 -IS -c \'import json; print("ready", flush=True); '
    'exec(compile(json.loads(open(0, "rb", 0, closefd=False).readline()), "relay", "exec"))\''
)


@dataclass(frozen=True)
class Way:
    """address: HOST:PORT on the machine itself, with a name and a password. source: where the bytes come from, for a
    person. is_broken: the connection ended by itself. moved: bytes that the machine got so far, by blob."""

    address: str
    user: str
    token: str
    source: str
    is_broken: Callable[[], bool]
    moved: Callable[[], Mapping[Digest, int]]


@contextmanager
def direct(host: str, parcel: Parcel, store: Store) -> Iterator[Way]:
    """A tunnel from the machine to this one. Raises EngineError."""
    with serving(parcel, store) as counter, Tunnel(host, counter.server.port) as tunnel:
        address = f"127.0.0.1:{tunnel.remote}"
        yield Way(address, USER, counter.token, "this machine", lambda: tunnel.is_broken, lambda: counter.moved)


class Via:
    """A relay on a machine, to which each blob goes once, and from which that machine and others take it.

    hosts: all machines that get the image; ssh on the relay's machine must reach the others by these names. The relay
    starts when it is first needed, and again when its connection has broken. Thread-safe.
    """

    def __init__(self, host: str, hosts: Sequence[str], parcel: Parcel, store: Store) -> None:
        self.host = host
        self._hosts = list(hosts)
        self._parcel = parcel
        manifest = parse_manifest(store.read(parcel.digest))
        self._sizes = {part.digest: part.size for part in (manifest.config, *manifest.layers)}
        self._store = store
        self._lock = Lock()
        self._stack = ExitStack()
        self._ended = Event()
        self._tunnel: Tunnel | None = None
        self._port = 0

    def __enter__(self) -> Via:
        self._counter: Counter = self._stack.enter_context(serving(self._parcel, self._store))
        Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        # Another thread may hold the lock, and wait for what the machine says.
        if (tunnel := self._tunnel) is not None:
            tunnel.cut()
        with self._lock:
            self._stop()
        self._stack.close()

    @property
    def sent(self) -> int:
        """Bytes that left this machine."""
        return sum(self._counter.moved.values())

    @contextmanager
    def way(self, host: str) -> Iterator[Way]:
        """Raises EngineError."""
        with self._lock:
            tunnel = self._tunnel if self._tunnel is not None and not self._tunnel.is_broken else self._start()
            port = self._port
        user, token = str(self._hosts.index(host)), self._counter.token

        def moved() -> Mapping[Digest, int]:
            return self._moved(user)

        if host == self.host:
            yield Way(f"127.0.0.1:{port}", user, token, "this machine", lambda: tunnel.is_broken, moved)
            return
        with Tunnel(host, port, self.host) as onward:
            broken = lambda: tunnel.is_broken or onward.is_broken  # noqa: E731
            yield Way(f"127.0.0.1:{onward.remote}", user, token, self.host, broken, moved)

    def finish(self) -> None:
        """All machines have the image: the relay removes what it kept."""
        with self._lock:
            if self._tunnel is not None:
                self._ask("done")
                self._stop()

    def _start(self) -> Tunnel:
        self._stop()
        server = self._counter.server.port
        tunnel = Tunnel(self.host, server, command=_START, ports=range(PORT + len(PORTS), PORT + 2 * len(PORTS)))
        self._tunnel = tunnel
        try:
            tunnel.__enter__()
        except EngineError as error:
            self._tunnel = None
            if "python3" in (error.cause or ""):
                raise error.replaced(next=f"install python3 on {self.host}, or deploy without --via") from None
            raise
        asked = {
            "image": self._parcel.digest,
            "blobs": self._sizes,
            "users": [str(number) for number in range(len(self._hosts))],
            "port": tunnel.remote,
            "token": self._counter.token,
            "ports": list(PORTS),
        }
        answer = self._ask(f"{json.dumps(Path(relay.__file__).read_text('utf-8'))}\n{json.dumps(asked)}")
        if not (re.fullmatch(rb"[0-9]{1,5}", answer) and 0 < int(answer) < 65536):
            self._stop()
            raise EngineError(
                "the relay does not start", id="deploy-relay-failed", where=self.host, cause=tunnel.printed
            )
        self._port = int(answer)
        return tunnel

    def _stop(self) -> None:
        if self._tunnel is not None:
            self._tunnel.__exit__()
            self._tunnel = None

    def _ask(self, text: str) -> bytes:
        """Send lines to the relay and return the line that answers; empty when it does not."""
        assert self._tunnel is not None
        asking, answering = self._tunnel.streams
        late = Timer(_ANSWER, self._tunnel.cut)
        late.start()
        try:
            asking.write(f"{text}\n".encode())
            asking.flush()
            return answering.readline(_LONGEST).strip()
        except OSError:
            return b""
        finally:
            late.cancel()

    def _moved(self, user: str) -> Mapping[Digest, int]:
        with self._lock:
            answer = self._ask("count") if self._tunnel is not None else b""
        try:
            counted = parse_json(answer)[user]
            found = {digest: counted[digest] for digest in self._sizes if digest in counted}
            return {digest: count for digest, count in found.items() if type(count) is int and 0 <= count < 1 << 50}
        except (KeyError, TypeError, ValueError):
            return {}

    def _beat(self) -> None:
        while not self._ended.wait(_BEAT):
            with self._lock:
                if self._tunnel is not None:
                    with suppress(OSError):
                        self._tunnel.streams[0].write(b"\n")
                        self._tunnel.streams[0].flush()
