"""HTTP servers for tests: real sockets on loopback, answers from a table, every request remembered."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from builder.digest import Digest
from builder.model.reference import Reference
from builder.oci.manifest import OCI_INDEX, OCI_MANIFEST
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig, RegistryEntry
from builder.retry import RetryPolicy


@dataclass
class Request:
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    """Break the connection after this many bytes of the body."""


Route = Answer | Callable[[Request], Answer]


class Server:
    """Answers from `routes`: of several answers for one request the first comes first, the last stays."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.routes: dict[tuple[str, str], list[Route]] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                path, _, query = self.path.partition("?")
                request = Request(self.command, path, query, dict(self.headers.items()), body)
                outer.requests.append(request)
                answer = outer.answer(request)
                self.send_response(answer.status)
                headers = {"Content-Length": str(len(answer.body)), **answer.headers}
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body[: answer.cut])
                self.close_connection = self.close_connection or answer.cut is not None

            do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def on(self, method: str, path: str, *answers: Route) -> None:
        self.routes[(method, path)] = list(answers)

    def answer(self, request: Request) -> Answer:
        answers = self.routes.get((request.method, request.path))
        if not answers:
            return problem(404, "NAME_UNKNOWN")
        route = answers.pop(0) if len(answers) > 1 else answers[0]
        return route(request) if callable(route) else route

    def paths(self) -> list[str]:
        return [f"{request.method} {request.path}" for request in self.requests]

    def ref(self, text: str = "team/app:1") -> Reference:
        return Reference.parse(f"{self.host}/{text}")

    def serve_manifest(self, data: bytes, *selectors: str, media_type: str = OCI_MANIFEST) -> str:
        """Serve a manifest of team/app by its digest and these tags; returns the digest."""
        digest = digest_of(data)
        for selector in (digest, *selectors):
            headers = {"Content-Type": media_type, "Docker-Content-Digest": digest}
            self.on("GET", f"/v2/team/app/manifests/{selector}", Answer(200, data, headers))
        return digest

    def serve_image(self, *tags: str, architecture: str = "arm64", **more: str) -> tuple[str, bytes]:
        """Serve an image of team/app; returns its manifest's digest and bytes."""
        config = json.dumps({"os": "linux", "architecture": architecture, **more}).encode()
        self.on("GET", f"/v2/team/app/blobs/{digest_of(config)}", Answer(200, config))
        data = image_manifest(config)
        return self.serve_manifest(data, *tags), data

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    try:
        yield server
    finally:
        server.close()


def digest_of(data: bytes) -> Digest:
    return Digest.of(data)


def image_manifest(config: bytes = b"{}", *layers: bytes) -> bytes:
    def descriptor(data: bytes, kind: str) -> dict[str, Any]:
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest_of(data), "size": len(data)}

    return json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": descriptor(config, "config.v1+json"),
            "layers": [descriptor(layer, "layer.v1.tar+gzip") for layer in layers],
        }
    ).encode()


def entry(digest: str, platform: str, **annotations: str) -> dict[str, Any]:
    names = ("os", "architecture", "variant")
    return {
        "mediaType": OCI_MANIFEST,
        "digest": digest,
        "size": 100,
        "platform": dict(zip(names, platform.split("/"), strict=False)),
        **({"annotations": annotations} if annotations else {}),
    }


def index(*entries: dict[str, Any], media_type: str = OCI_INDEX) -> bytes:
    return json.dumps({"schemaVersion": 2, "mediaType": media_type, "manifests": entries}).encode()


def problem(status: int, code: str, **headers: str) -> Answer:
    body = json.dumps({"errors": [{"code": code, "message": "a message with a secret"}]}).encode()
    return Answer(status, body, {"Content-Type": "application/json", **headers})


def client(
    credentials: Credentials | None = None, entries: dict[str, RegistryEntry] | None = None, **patience: Any
) -> Registry:
    """A client that never really waits and knows nothing of this machine's own settings."""
    quick = {"sleep": lambda seconds: None, "connect": 2.0, "read": 2.0, **patience}
    return Registry(
        config=RegistriesConfig(entries), credentials=credentials or Credentials(), retry_policy=RetryPolicy(**quick)
    )


MANIFEST = "/v2/team/app/manifests/1"
BLOB = b"0123456789" * 50_000
BLOB_PATH = f"/v2/team/app/blobs/{digest_of(BLOB)}"
