"""A strict registry, written from the OCI distribution specification 1.1: what it does not allow is refused.

It has the referrers API, takes chunks in order only, checks every digest, refuses a manifest whose content is not
there or whose media type is not the one of the request, and knows no cross-repository mount.
https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from builder.digest import Digest, is_digest
from builder.oci.manifest import OCI_INDEX
from tests.support.loopback import listening

_NAME = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
_TAG = r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}"
_ROUTES = [
    ("blob", re.compile(rf"/v2/({_NAME})/blobs/(sha256:[0-9a-f]{{64}})")),
    ("start", re.compile(rf"/v2/({_NAME})/blobs/uploads/")),
    ("upload", re.compile(rf"/v2/({_NAME})/blobs/uploads/([0-9a-f]{{32}})")),
    ("manifest", re.compile(rf"/v2/({_NAME})/manifests/(sha256:[0-9a-f]{{64}}|{_TAG})")),
    ("tags", re.compile(rf"/v2/({_NAME})/tags/list")),
    ("referrers", re.compile(rf"/v2/({_NAME})/referrers/(sha256:[0-9a-f]{{64}})")),
]
_MOST = 4 << 20
"""Bytes of a manifest."""
_PIECE = 1 << 20


@dataclass
class Repository:
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


@dataclass
class StrictRegistry:
    """HOST:PORT, and what was stored. asked: method and path of every request. refused: codes of all errors."""

    host: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    uploads: dict[str, bytearray] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    cuts: list[int] = field(default_factory=list)
    """Break the next connections after so many bytes of a PATCH; what came before is kept."""
    received: int = 0
    """Bytes of blobs."""
    pause: float = 0.0
    """Seconds between two megabytes of a body."""
    methods: tuple[str, ...] = ("POST", "PATCH", "PUT", "GET", "HEAD")
    busy: int = 0
    """The next POSTs that are answered with 503."""


class _Refused(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: StrictRegistry

    def handle_request(self) -> None:
        self.registry.asked.append(f"{self.command} {self.path}")
        body = self._body()
        if self.command not in self.registry.methods:
            self._answer(405)
            return None
        if self.command == "POST" and self.registry.busy:
            self.registry.busy -= 1
            self._answer(503)
            return None
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        try:
            if url.path == "/v2/":
                return self._answer(200, b"{}")
            for name, pattern in _ROUTES:
                if found := pattern.fullmatch(url.path):
                    with self.registry.lock:
                        repository = self.registry.repositories.setdefault(found[1], Repository())
                        return getattr(self, f"_{name}")(repository, *found.groups(), query=query, body=body)
            raise _Refused(404, "NAME_INVALID")
        except _Refused as error:
            self.registry.refused.append(error.code)
            self._answer(error.status, json.dumps({"errors": [{"code": error.code}]}).encode())

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = handle_request

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self._plain_body(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _plain_body(self, size: int) -> bytes:
        cut = self.registry.cuts.pop(0) if self.command == "PATCH" and self.registry.cuts else size
        body = bytearray()
        while len(body) < min(size, cut) and (data := self.rfile.read(min(_PIECE, min(size, cut) - len(body)))):
            body += data
            time.sleep(self.registry.pause)
        self.close_connection = len(body) < size
        return bytes(body)

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"Content_Type": "application/json"} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _blob(self, repository: Repository, name: str, digest: str, *, query: Any, body: bytes) -> None:
        data = repository.blobs.get(digest)
        if self.command not in ("GET", "HEAD"):
            raise _Refused(405, "UNSUPPORTED")
        if data is None:
            raise _Refused(404, "BLOB_UNKNOWN")
        about = {"Docker_Content_Digest": digest, "Content_Type": "application/octet-stream", "Accept_Ranges": "bytes"}
        wanted = re.fullmatch(r"bytes=([0-9]+)-([0-9]*)", self.headers.get("Range", ""))
        if wanted is None:
            return self._answer(200, data, **about)
        first, last = int(wanted[1]), int(wanted[2] or len(data) - 1)
        if first >= len(data):
            raise _Refused(416, "BLOB_UPLOAD_INVALID")
        part = data[first : last + 1]
        about["Content_Range"] = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
        return self._answer(206, part, **about)

    def _start(self, repository: Repository, name: str, *, query: dict[str, str], body: bytes) -> None:
        if self.command != "POST" or body:
            raise _Refused(405, "UNSUPPORTED")
        # A registry that cannot mount answers with the place for an upload.
        session = uuid.uuid4().hex
        self.registry.uploads[session] = bytearray()
        self._answer(202, Location=f"/v2/{name}/blobs/uploads/{session}?state=0", Range="0-0")

    def _upload(self, repository: Repository, name: str, session: str, *, query: dict[str, str], body: bytes) -> None:
        data = self.registry.uploads.get(session)
        if data is None:
            raise _Refused(404, "BLOB_UPLOAD_UNKNOWN")
        if self.command == "GET":
            place = f"/v2/{name}/blobs/uploads/{session}?state={len(data)}"
            return self._answer(204, Location=place, Range=f"0-{max(len(data) - 1, 0)}")
        # The query of the Location is a part of it.
        if "state" not in query:
            raise _Refused(400, "BLOB_UPLOAD_INVALID")
        if body:
            if self.headers.get("Content-Type") != "application/octet-stream":
                raise _Refused(400, "BLOB_UPLOAD_INVALID")
            given = self.headers.get("Content-Range", "0-")
            if not given.startswith(f"{len(data)}-"):
                raise _Refused(416, "BLOB_UPLOAD_INVALID")
            data += body
            self.registry.received += len(body)
        if self.close_connection:
            return None
        if self.command == "PATCH":
            place = f"/v2/{name}/blobs/uploads/{session}?state={len(data)}"
            return self._answer(202, Location=place, Range=f"0-{len(data) - 1}")
        if self.command != "PUT":
            raise _Refused(405, "UNSUPPORTED")
        del self.registry.uploads[session]
        if Digest.of(bytes(data)) != query.get("digest"):
            raise _Refused(400, "DIGEST_INVALID")
        repository.blobs[query["digest"]] = bytes(data)
        return self._answer(201, Location=f"/v2/{name}/blobs/{query['digest']}")

    def _manifest(self, repository: Repository, name: str, selector: str, *, query: Any, body: bytes) -> None:
        if self.command == "PUT":
            return self._put_manifest(repository, name, selector, body)
        digest = repository.tags.get(selector, selector)
        if self.command not in ("GET", "HEAD"):
            raise _Refused(405, "UNSUPPORTED")
        if digest not in repository.manifests:
            raise _Refused(404, "MANIFEST_UNKNOWN")
        kind, data = repository.manifests[digest]
        return self._answer(200, data, Content_Type=kind, Docker_Content_Digest=digest)

    def _put_manifest(self, repository: Repository, name: str, selector: str, body: bytes) -> None:
        digest = Digest.of(body)
        if is_digest(selector) and selector != digest:
            raise _Refused(400, "DIGEST_INVALID")
        try:
            manifest = json.loads(body)
        except ValueError:
            raise _Refused(400, "MANIFEST_INVALID") from None
        kind = self.headers.get("Content-Type", "")
        if len(body) > _MOST or manifest.get("mediaType", kind) != kind:
            raise _Refused(400, "MANIFEST_INVALID")
        blobs = [*manifest.get("layers", ()), *([manifest["config"]] if "config" in manifest else ())]
        if any(len(repository.blobs.get(item["digest"], b"")) != item["size"] for item in blobs):
            raise _Refused(404, "MANIFEST_BLOB_UNKNOWN")
        if any(item["digest"] not in repository.manifests for item in manifest.get("manifests", ())):
            raise _Refused(404, "MANIFEST_BLOB_UNKNOWN")
        repository.manifests[digest] = (kind, body)
        if not is_digest(selector):
            repository.tags[selector] = digest
        subject = {"OCI_Subject": manifest["subject"]["digest"]} if "subject" in manifest else {}
        self._answer(201, Location=f"/v2/{name}/manifests/{digest}", Docker_Content_Digest=digest, **subject)

    def _tags(self, repository: Repository, name: str, *, query: Any, body: bytes) -> None:
        self._answer(200, json.dumps({"name": name, "tags": sorted(repository.tags)}).encode())

    def _referrers(self, repository: Repository, name: str, digest: str, *, query: dict[str, str], body: bytes) -> None:
        found = []
        for known, (kind, data) in repository.manifests.items():
            manifest = json.loads(data)
            if (manifest.get("subject") or {}).get("digest") == digest:
                about = {"mediaType": kind, "digest": known, "size": len(data)}
                about["artifactType"] = manifest.get("artifactType") or manifest["config"]["mediaType"]
                found.append(about | {"annotations": manifest.get("annotations") or {}})
        wanted = query.get("artifactType")
        found = [item for item in found if wanted in (None, item["artifactType"])]
        index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": found}
        applied = {"OCI_Filters_Applied": "artifactType"} if wanted else {}
        self._answer(200, json.dumps(index).encode(), Content_Type=OCI_INDEX, **applied)


@contextlib.contextmanager
def strict_registry() -> Iterator[StrictRegistry]:
    """An empty strict registry on loopback."""
    registry = StrictRegistry()
    with listening(_Handler, registry=registry) as registry.host:
        yield registry
