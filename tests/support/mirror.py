"""A package index and a Debian archive on 127.0.0.1 that record requests."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote

from tests.support.loopback import listening


@dataclass
class Mirror:
    """pool: files of the archive by path. wheels: files of each project by name. Both may change while it runs.

    silent: paths that are never answered in full.
    """

    address: str = ""
    pool: dict[str, bytes] = field(default_factory=dict)
    wheels: dict[str, dict[str, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def environment(self) -> dict[str, str]:
        """The settings that make a machine use this mirror and no other."""
        return {
            "UV_DEFAULT_INDEX": f"{self.address}/simple/",
            "BUILDER_DEB_MIRROR": f"{self.address}/debian",
            "BUILDER_DEB_SNAPSHOT": "",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def find(self, path: str) -> tuple[str, bytes] | None:
        """Content type and body."""
        kind, _, rest = path.strip("/").partition("/")
        if kind == "debian" and rest in self.pool:
            return "application/octet-stream", self.pool[rest]
        if kind == "simple" and rest in self.wheels:
            links = [
                f'<a href="/files/{rest}/{file}#sha256={hashlib.sha256(data).hexdigest()}">{file}</a>'
                for file, data in self.wheels[rest].items()
            ]
            return "text/html", f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()
        project, _, file = rest.partition("/")
        if kind == "files" and file in self.wheels.get(project, {}):
            return "application/octet-stream", self.wheels[project][file]
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    mirror: Mirror

    def do_GET(self) -> None:
        path = unquote(self.path)
        self.mirror.asked.append(path)
        found = self.mirror.find(path)
        kind, body = found or ("text/plain", b"")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if path in self.mirror.silent:
                self.wfile.write(body[:1])
                self.mirror.stop.wait(20)
                self.close_connection = True
            elif self.command != "HEAD":
                self.wfile.write(body)

    # uv asks for the length of a wheel first.
    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def running() -> Iterator[Mirror]:
    """An empty mirror that answers."""
    mirror = Mirror()
    with listening(_Handler, mirror=mirror) as host:
        mirror.address = f"http://{host}"
        try:
            yield mirror
        finally:
            mirror.stop.set()
