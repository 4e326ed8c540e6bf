"""Servers of tests: on 127.0.0.1, at a port of their own, for as long as they are needed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextlib.contextmanager
def listening(handler: type[BaseHTTPRequestHandler], **bound: object) -> Iterator[str]:
    """Its host and port. bound: attributes of the handler's class, what its answers come from."""
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (handler,), bound)) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
