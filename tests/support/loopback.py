"""HTTP servers on a free port of 127.0.0.1, for the duration of a `with` block."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that closes its connection early, as `lock --check --remote` does; print other errors."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextlib.contextmanager
def listening(handler: type[BaseHTTPRequestHandler], **bound: object) -> Iterator[str]:
    """A server's HOST:PORT. bound: attributes of the handler's class, from which it answers."""
    with _Server(("127.0.0.1", 0), type("Bound", (handler,), bound)) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def free_port() -> int:
    """A port that nothing listens on now, for programs that cannot take port 0."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
