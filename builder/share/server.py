"""Server: a library as a read-only registry over HTTP (OCI distribution specification 1.1, the category Pull)."""

from __future__ import annotations

import hmac
import io
import ipaddress
import json
import re
import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Lock, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from builder.digest import Digest, is_digest
from builder.errors import BuilderError, EngineError
from builder.oci.manifest import OCI_INDEX
from builder.regular import open_regular
from builder.share.library import Blob, Library
from builder.share.received import Requests, byte_range, password

USER = "builder"
"""The name to log in with; any other does as well."""
_CONNECTIONS = 64
"""Open at the same time; docker opens about four."""
_SILENCE = 60.0
"""Seconds that a client may not take any byte of an answer."""
_PATH = re.compile(r"/v2/(?P<name>.{1,255}?)/(?P<kind>manifests|blobs|referrers|tags)/(?P<item>[A-Za-z0-9_.:-]{1,140})")

Sent = Callable[[str, Digest, int], None]
"""Receives the address of a client, a blob and the number of its bytes that were sent."""


class Server:
    """Serves a library while its `with` block runs. address: host and port; port 0 takes a free one.

    token: the password that clients must send (HTTP Basic); None for nobody but this machine. Raises EngineError when
    it cannot listen there.
    """

    def __init__(
        self,
        library: Library,
        address: tuple[str, int] = ("127.0.0.1", 0),
        *,
        token: str | None = None,
        sent: Sent = lambda client, digest, size: None,
    ) -> None:
        try:
            self._http = _Http(address, library, token, sent)
        except OSError as error:
            raise EngineError(
                f"cannot listen: {error.strerror or error}",
                id="serve-cannot-listen",
                where=f"{address[0]}:{address[1]}",
                next="choose another address: --listen HOST:PORT",
            ) from None
        name, port = self._http.server_address[:2]
        self.host = f"[{name!s}]:{port}" if ":" in str(name) else f"{name!s}:{port}"
        """HOST:PORT, as in references."""
        self.port = int(port)
        self._thread = Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)

    @property
    def requests(self) -> int:
        """How many requests were answered, right or wrong."""
        return self._http.requests

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.ending = True
        self._http.shutdown()
        self._http.server_close()

    def wait(self) -> None:
        """Return when the server has ended, which it does not by itself."""
        while self._thread.is_alive():
            self._thread.join(1)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server at this host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 32

    def __init__(self, address: tuple[str, int], library: Library, token: str | None, sent: Sent) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.library = library
        self.token = token
        self.sent = sent
        self.requests = 0
        self.ending = False
        self.lock = Lock()
        self._free = BoundedSemaphore(_CONNECTIONS)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Without the look-up of this machine's name, which may wait for a name server."""
        if self.allow_reuse_address:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        while not self._free.acquire(timeout=0.1):
            # The thread that ends the server waits for this one.
            if self.ending:
                self.shutdown_request(request)
                return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client has gone, or a layer of a base cannot be had; the client sees the end of its answer."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # docker's containerd store tries TLS first, and HTTP then if the answer begins with HTTP; that of 0.9 does not.
    default_request_version = "HTTP/1.0"
    server_version = "builder"
    sys_version = ""
    wbufsize = -1
    timeout = _SILENCE
    server: _Http

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._received = Requests(self.connection, _SILENCE)
        self.rfile = io.BufferedReader(self._received)

    def handle_one_request(self) -> None:
        self._received.begin()
        super().handle_one_request()

    def do_GET(self) -> None:
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            # Its body is not read, and must not be taken for the next request.
            self.close_connection = True
        with self.server.lock:
            self.server.requests += 1
        if self._refused():
            return
        parts = urlsplit(self.path)
        found = _PATH.fullmatch(parts.path)
        if parts.path in ("/v2/", "/v2"):
            self._json({})
        elif found is None:
            self._problem(404, "NAME_UNKNOWN")
        else:
            answer = {
                "manifests": self._manifest,
                "blobs": self._blob,
                "referrers": self._referrers,
                "tags": self._tags,
            }[found["kind"]]
            answer(found["name"], found["item"], parts.query)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        # The body of the request is not read, so the connection cannot be used again.
        self.close_connection = True
        self._problem(405, "UNSUPPORTED", {"Allow": "GET, HEAD", "Connection": "close"})

    do_PUT = do_PATCH = do_DELETE = do_POST

    def _refused(self) -> bool:
        """Whether the client has no right to ask; it got its answer."""
        token = self.server.token
        if token is None:
            # A web page whose name leads to this machine must not read from it.
            if is_loopback(re.sub(r":[0-9]+$", "", self.headers.get("Host", ""))):
                return False
            self._problem(403, "DENIED")
            return True
        kind, _, sent = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "basic" and hmac.compare_digest(password(sent), token.encode()):
            return False
        self._problem(401, "UNAUTHORIZED", {"WWW-Authenticate": 'Basic realm="builder"'})
        return True

    def _manifest(self, name: str, item: str, query: str) -> None:
        manifest = self.server.library.manifest(name, item)
        if manifest is None:
            self._problem(404, "MANIFEST_UNKNOWN")
            return
        headers = {"Docker-Content-Digest": manifest.digest, "ETag": f'"{manifest.digest}"'}
        self._answer(200, {**headers, "Content-Type": manifest.media_type}, manifest.data)

    def _tags(self, name: str, item: str, query: str) -> None:
        tags = sorted(self.server.library.tags(name))
        if item != "list" or not tags:
            self._problem(404, "NAME_UNKNOWN")
            return
        asked = parse_qs(query)
        last, most = asked.get("last", [""])[0], asked.get("n", [""])[0]
        rest = [tag for tag in tags if tag > last]
        page = rest[: int(most)] if most.isascii() and most.isdigit() and len(most) < 9 else rest
        more = {"Link": f'</v2/{name}/tags/list?n={most}&last={page[-1]}>; rel="next"'} if page and page != rest else {}
        self._json({"name": name, "tags": page}, more)

    def _referrers(self, name: str, item: str, query: str) -> None:
        if not is_digest(item):
            self._problem(400, "DIGEST_INVALID")
            return
        # What is attached to an image is made when it is pushed: the store has none of it.
        headers = {"OCI-Filters-Applied": "artifactType"} if "artifactType" in parse_qs(query) else {}
        self._json({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}, headers, OCI_INDEX)

    def _blob(self, name: str, item: str, query: str) -> None:
        blob = self.server.library.blob(name, Digest(item)) if is_digest(item) else None
        if blob is None:
            self._problem(404, "BLOB_UNKNOWN")
            return
        headers = {
            "Content-Type": "application/octet-stream",
            "Docker-Content-Digest": blob.digest,
            "ETag": f'"{blob.digest}"',
        }
        if blob.file is None:
            self._stream(blob, headers)
            return
        headers["Accept-Ranges"] = "bytes"
        wanted = byte_range(self.headers.get("Range", ""), blob.size)
        if wanted is None:
            self._problem(416, "RANGE_INVALID", {"Content-Range": f"bytes */{blob.size}"})
            return
        start, end = wanted
        partial = (start, end) != (0, blob.size)
        if partial:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{blob.size}"
        with open_regular(blob.file) as file:
            self._head(206 if partial else 200, {**headers, "Content-Length": str(end - start)})
            if self.command == "GET" and end > start:
                self.wfile.flush()
                self.connection.sendfile(file, start, end - start)
                self.server.sent(self.client_address[0], blob.digest, end - start)

    def _stream(self, blob: Blob, headers: dict[str, str]) -> None:
        """A layer of a base. If it breaks, the connection ends before the answer does, and the client sees that."""
        self.close_connection = True
        chunks = blob.chunks
        try:
            first = next(chunks, b"") if self.command == "GET" else b""
        except BuilderError:
            self._problem(502, "BLOB_UNKNOWN")
            return
        self._head(200, {**headers, "Content-Length": str(blob.size), "Connection": "close"})
        if self.command == "GET":
            self.wfile.write(first)
            for chunk in chunks:
                self.wfile.write(chunk)
            self.server.sent(self.client_address[0], blob.digest, blob.size)

    def _json(self, value: Any, headers: dict[str, str] | None = None, kind: str = "application/json") -> None:
        self._answer(200, {"Content-Type": kind, **(headers or {})}, json.dumps(value).encode())

    def _problem(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        body = json.dumps({"errors": [{"code": code, "message": code.lower().replace("_", " ")}]}).encode()
        self._answer(status, {"Content-Type": "application/json", **(headers or {})}, body)

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self._head(status, {**headers, "Content-Length": str(len(body))})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Docker-Distribution-API-Version", "registry/2.0")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: `sent` says what matters."""
