"""Debian's docker-registry on loopback, images in it, and a proxy in front of it with faults."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from builder.model.reference import Reference
from builder.oci.manifest import OCI_INDEX, OCI_MANIFEST
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from tests.support.http_registry import digest_of, entry, image_manifest, index
from tests.support.loopback import listening

ATTESTATION = {"vnd.docker.reference.type": "attestation-manifest"}


def is_installed() -> bool:
    """Whether this machine has docker-registry."""
    return shutil.which("docker-registry") is not None


@contextlib.contextmanager
def running(folder: Path, auth: Mapping[str, Any] | None = None, *, delete: bool = True) -> Iterator[str]:
    """HOST:PORT of an empty registry that keeps its data in `folder`. auth: its `auth` configuration;
    without it everyone. delete: whether it deletes manifests."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": delete}},
        "http": {"addr": f"127.0.0.1:{port}"},
        **({"auth": auth} if auth else {}),
    }
    (folder / "config.yml").write_text(json.dumps(config))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(folder / "config.yml")], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 20
        while process.poll() is None and not _answers(port) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert process.poll() is None and _answers(port), (folder / "log").read_text()
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=10)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@dataclass
class Images:
    """Puts images without layers into a registry."""

    host: str
    client: Registry = field(default_factory=lambda: Registry(config=RegistriesConfig(), credentials=Credentials()))

    def image(self, repository: str, tag: str | None = None, platform: str = "linux/arm64", salt: str = "") -> str:
        """An image whose config names this platform; the digest of its manifest."""
        keys = ("os", "architecture", "variant")
        config = {**dict(zip(keys, platform.split("/"), strict=False)), "config": {"Labels": {"salt": salt}}}
        data = json.dumps({**config, "rootfs": {"type": "layers", "diff_ids": []}}).encode()
        manifest = image_manifest(data)
        target = Reference(self.host, repository, tag)
        self.client.upload(target, digest_of(data), len(data), lambda: iter([data]))
        return self.client.put_manifest(target, manifest, OCI_MANIFEST)

    def index(self, repository: str, tag: str, **platforms: str) -> str:
        """An index of digests by platform, written as linux_arm64_v8; and an attestation of the first of them."""
        sizes = {}
        for digest in platforms.values():
            sizes[digest] = len(self.client.manifest(Reference(self.host, repository, digest=digest)).data)
        entries = [{**entry(d, name.replace("_", "/")), "size": sizes[d]} for name, d in platforms.items()]
        first = next(iter(platforms.values()))
        attested = {**entry(first, "unknown/unknown", **ATTESTATION), "size": sizes[first]}
        return self.client.put_manifest(Reference(self.host, repository, tag), index(attested, *entries), OCI_INDEX)

    def multi(self, repository: str, tag: str, salt: str = "") -> tuple[str, str]:
        """An image for amd64 and arm64/v8; the digests of its index and of its arm64 manifest."""
        amd = self.image(repository, platform="linux/amd64", salt=salt)
        arm = self.image(repository, platform="linux/arm64/v8", salt=salt)
        return self.index(repository, tag, linux_amd64=amd, linux_arm64_v8=arm), arm


@dataclass
class Front:
    """A proxy of a registry, with faults:

    delay: seconds before every answer. token: it demands a bearer token, and grants one to everyone when `generous`.
    busy: how many answers are 429 first, with Retry-After. wrong: paths that are answered with other bytes.
    lost: paths that are answered with 404.
    """

    backend: str
    host: str = ""
    delay: float = 0.0
    token: bool = False
    generous: bool = True
    busy: int = 0
    retry_after: str = "1"
    wrong: dict[str, bytes] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    connections: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, part: str) -> int:
        """How often something with this in its path was asked for."""
        return sum(part in line for line in self.asked)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    front: Front

    def setup(self) -> None:
        super().setup()
        with self.front.lock:
            self.front.connections += 1

    def do_GET(self) -> None:
        front = self.front
        front.asked.append(f"{self.command} {self.path}")
        time.sleep(front.delay)
        with front.lock:
            front.busy -= 1
            busy = front.busy >= 0
        path = self.path.partition("?")[0]
        if busy:
            self._answer(429, {"Retry-After": front.retry_after})
        elif path == "/token":
            self._answer(200, {}, b'{"token": "good"}') if front.generous else self._answer(401, {})
        elif front.token and self.headers.get("Authorization") != "Bearer good":
            asks = f'Bearer realm="http://{front.host}/token",service="test"'
            self._answer(401, {"WWW-Authenticate": asks}, b'{"errors": [{"code": "UNAUTHORIZED"}]}')
        elif path in front.lost:
            self._answer(404, {}, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')
        else:
            self._hand_on(path)

    do_HEAD = do_GET

    def _hand_on(self, path: str) -> None:
        connection = http.client.HTTPConnection(self.front.backend, timeout=20)
        kept = {name: value for name, value in self.headers.items() if name in ("Accept", "Range")}
        connection.request(self.command, self.path, headers=kept)
        response = connection.getresponse()
        body = response.read()
        names = ("Content-Type", "Docker-Content-Digest", "Content-Length", "WWW-Authenticate")
        headers = {name: value for name in names if (value := response.headers.get(name))}
        connection.close()
        if path in self.front.wrong:
            body = self.front.wrong[path]
            headers |= {"Content-Length": str(len(body)), "Docker-Content-Digest": digest_of(body)}
        self._answer(response.status, headers, body)

    def _answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def in_front_of(backend: str) -> Iterator[Front]:
    """A well-behaved server in front of a registry."""
    front = Front(backend)
    with listening(_Handler, front=front) as front.host:
        yield front
