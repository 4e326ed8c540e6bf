"""A docker daemon without containers: the real HTTP API on a unix socket, with functions in place of programs."""

from __future__ import annotations

import json
import re
import socketserver
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.docker_state import PATIENCE, DockerDaemon, FakeContainer, Json, Program, succeed


@contextmanager
def docker_daemon(socket: Path, program: Program = succeed) -> Iterator[DockerDaemon]:
    """A daemon that listens on a socket. Its containers are ended afterwards."""
    daemon = DockerDaemon(socket, program)
    server = _Server(str(socket), _Handler)
    server.daemon_threads = True
    server.daemon = daemon
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield daemon
    finally:
        server.shutdown()
        server.server_close()
        for container in daemon.containers:
            container.asked.set()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon: DockerDaemon

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a traceback, but not when the client has closed the connection."""
        if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self.answer("GET")

    def do_POST(self) -> None:
        self.answer("POST")

    def do_DELETE(self) -> None:
        self.answer("DELETE")

    def answer(self, method: str) -> None:
        """Find the route of a request."""
        url = urlsplit(self.path)
        path = re.sub(r"^/v[\d.]+", "", unquote(url.path))
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        body = self.body()
        self.server.daemon.calls.append(f"{method} {path}")
        self.server.daemon.logins += self.headers.get_all("Authorization", [])
        for verb, pattern, route in _ROUTES:
            found = re.fullmatch(pattern, path)
            if verb == method and found:
                route(self, *found.groups(), query=query, body=body)
                return
        self.send(404, {"message": "page not found"})

    def body(self) -> bytes:
        """The body of the request, chunked or not."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while size := int(self.rfile.readline().strip() or b"0", 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def send(self, status: int, value: Json = None) -> None:
        data = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def container(self, key: str) -> FakeContainer | None:
        found = self.server.daemon.find(key)
        if found is None:
            self.send(404, {"message": f"No such container: {key}"})
        return found

    def get_version(self, **_: Any) -> None:
        self.send(200, {"Version": self.server.daemon.version, "ApiVersion": "1.47", "MinAPIVersion": "1.24"})

    def get_info(self, **_: Any) -> None:
        self.send(200, self.server.daemon.info)

    def list_images(self, **_: Any) -> None:
        rows = [
            {"Id": id, "RepoDigests" if "@" in name else "RepoTags": [name]}
            for name, id in self.server.daemon.images.items()
        ]
        self.send(200, rows)

    def inspect_image(self, name: str, **_: Any) -> None:
        id = self.server.daemon.images.get(name)
        self.send(200, {"Id": id}) if id else self.send(404, {"message": f"No such image: {name}"})

    def remove_image(self, name: str, **_: Any) -> None:
        known = self.server.daemon.images.pop(name, None)
        self.send(200, [{"Untagged": name}]) if known else self.send(404, {"message": f"No such image: {name}"})

    def load(self, *, body: bytes, **_: Any) -> None:
        self.messages(self.server.daemon.load(body), {"stream": "Loaded image"})

    def pull(self, *, query: dict[str, str], **_: Any) -> None:
        daemon = self.server.daemon
        problem = daemon.pull_problem
        if query["fromImage"].startswith("127.0.0.1:"):
            # This daemon is in no network.
            problem = problem or "connect: connection refused"
        if not problem:
            daemon.images[f"{query['fromImage']}@{query['tag']}"] = query["tag"]
        self.messages(problem, {"status": "Status: Downloaded newer image"})

    def messages(self, problem: str, last: Json) -> None:
        """A stream of progress messages that ends with a message of success, or goes on after an error."""
        progress = self.server.daemon.said or [
            {"status": "Extracting", "id": "0a", "progressDetail": {"current": i}} for i in range(3)
        ]
        error = {"errorDetail": {"message": problem}, "error": problem}
        items = [*progress, error, *progress] if problem else [*progress, last]
        self.chunked((json.dumps(item).encode() + b"\r\n" for item in items), cut=self.server.daemon.cut)

    def list_containers(self, **_: Any) -> None:
        daemon = self.server.daemon
        self.send(
            200,
            [
                {
                    "Id": item.id,
                    "Names": [f"/{item.name}"],
                    "Image": item.body["Image"],
                    "NetworkSettings": {"Networks": {daemon.networks: {}}},
                }
                for item in daemon.containers
                if item.started and not item.removed
            ],
        )

    def create(self, *, query: dict[str, str], body: bytes, **_: Any) -> None:
        request = json.loads(body)
        daemon = self.server.daemon
        if request["Image"] not in daemon.images:
            self.send(404, {"message": f"No such image: {request['Image']}"})
            return
        made = FakeContainer(query["name"], {**request, "Platform": query.get("platform", "")})
        daemon.containers.append(made)
        self.send(201, {"Id": made.id, "Warnings": []})

    def inspect(self, key: str, **_: Any) -> None:
        if found := self.container(key):
            running = found.started and not found.ended.is_set()
            state = {"Running": running, "ExitCode": found.code or 0, "OOMKilled": False}
            self.send(200, {"Id": found.id, "Name": f"/{found.name}", "State": state, "Config": {"Tty": False}})

    def start(self, key: str, **_: Any) -> None:
        if found := self.container(key):
            if problem := self.server.daemon.refuse(found):
                self.send(500, {"message": problem})
                return
            self.server.daemon.start(found)
            self.send(204)

    def wait(self, key: str, **_: Any) -> None:
        if found := self.container(key):
            found.ended.wait(PATIENCE)
            self.send(200, {"StatusCode": 137 if found.code is None else found.code})

    def stop(self, key: str, *, query: dict[str, str], **_: Any) -> None:
        if found := self.container(key):
            found.asked.set()
            if not found.ended.wait(float(query.get("t", 10))):
                found.code = 137
                found.ended.set()
            self.send(204)

    def logs(self, key: str, *, query: dict[str, str], **_: Any) -> None:
        if found := self.container(key):
            wanted = {number for number, name in ((1, "stdout"), (2, "stderr")) if query.get(name) in ("1", "True")}
            self.chunked(self.frames(found, wanted, query.get("follow") in ("1", "True")))

    def frames(self, container: FakeContainer, wanted: set[int], follow: bool) -> Iterator[bytes]:
        sent = 0
        while True:
            ended = container.ended.is_set()
            for stream, data in container.output[sent:]:
                sent += 1
                if stream in wanted:
                    yield struct.pack(">BxxxL", stream, len(data)) + data
            if ended or not follow:
                return
            container.ended.wait(0.01)

    def remove(self, key: str, **_: Any) -> None:
        if found := self.container(key):
            found.removed = True
            found.asked.set()
            if not found.started:
                found.ended.set()
            if found.ended.wait(1) is False:
                found.code = 137
                found.ended.set()
            self.send(204)

    def chunked(self, chunks: Iterator[bytes], *, cut: bool = False) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            self.wfile.flush()
        if cut:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        pass


_ROUTES: list[tuple[str, str, Callable[..., None]]] = [
    ("GET", "/version", _Handler.get_version),
    ("GET", "/info", _Handler.get_info),
    ("GET", "/images/json", _Handler.list_images),
    ("GET", "/images/(.+)/json", _Handler.inspect_image),
    ("DELETE", "/images/(.+)", _Handler.remove_image),
    ("POST", "/images/load", _Handler.load),
    ("POST", "/images/create", _Handler.pull),
    ("GET", "/containers/json", _Handler.list_containers),
    ("POST", "/containers/create", _Handler.create),
    ("GET", "/containers/([^/]+)/json", _Handler.inspect),
    ("POST", "/containers/([^/]+)/start", _Handler.start),
    ("POST", "/containers/([^/]+)/wait", _Handler.wait),
    ("POST", "/containers/([^/]+)/stop", _Handler.stop),
    ("GET", "/containers/([^/]+)/logs", _Handler.logs),
    ("DELETE", "/containers/([^/]+)", _Handler.remove),
]
