"""The relay of `deploy --via`: each blob comes through the uplink once, is kept in a folder, and is sent to all.

This text is sent to the machine of --via and runs there with `python3 -IS`, so it imports only the standard library.
Standard input: a line of JSON (`main`), then `count` lines, to each of which one line of JSON answers, and `done`,
which removes the folder. The relay ends with its input; what it has stays for the next run.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import http.client
import http.server
import json
import os
import pathlib
import re
import select
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

_SILENCE = 60.0
"""Seconds without a line of the input, after which the connection counts as broken; also for each read and write."""
_KEPT = 2 * 86400.0
"""Seconds for which what an unfinished deployment left is kept."""
_CHUNK = 1 << 20
_MOST = 8 << 20
"""Bytes of an answer that is passed on."""
_BLOB = re.compile(r"/v2/.{1,255}/blobs/(sha256:[0-9a-f]{64})")
_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{0,18})")


class Uplink:
    """The server at the other end of the tunnel."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._login = "Basic " + base64.b64encode(b"relay:" + token.encode()).decode()

    def get(self, path: str, headers: dict[str, str]) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Ask for a path; the caller closes the connection. Raises OSError and HTTPException."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_SILENCE)
        connection.request("GET", path, headers={**headers, "Authorization": self._login})
        return connection, connection.getresponse()


class Blob:
    """A blob that comes, or has come. size in bytes; have: how many of them are in the file."""

    def __init__(self, folder: pathlib.Path, digest: str, size: int) -> None:
        self.file = folder / digest[7:]
        self.size = size
        self._digest = digest
        self.have = 0
        self._comes = False
        self._changed = threading.Condition()

    def come(self, uplink: Uplink, path: str) -> None:
        """Start to fetch the blob, unless it is here or comes already."""
        with self._changed:
            if not self._comes and self.have < self.size:
                self._comes = True
                threading.Thread(target=self._run, args=(uplink, path), daemon=True).start()

    def wait(self, position: int) -> bool:
        """Wait until there are bytes beyond a position; False: they do not come."""
        with self._changed:
            while self.have <= position and self._comes:
                self._changed.wait()
            return self.have > position

    def _run(self, uplink: Uplink, path: str) -> None:
        try:
            self._fetch(uplink, path)
        except (OSError, http.client.HTTPException, ValueError) as error:
            print(f"{self._digest[:19]}: {error}", file=sys.stderr, flush=True)
        finally:
            with self._changed:
                self._comes = False
                self._changed.notify_all()

    def _fetch(self, uplink: Uplink, path: str) -> None:
        """Go on where the file ends. Its last bytes are given only of this blob; another file is emptied."""
        with self.file.open("ab+") as out:
            there = hashlib.sha256()
            out.seek(0)
            for chunk in iter(lambda: out.read(_CHUNK), b""):
                there.update(chunk)
            have = out.tell()
            if have < self.size:
                self._grown(have)
                connection, answer = uplink.get(path, {"Range": f"bytes={have}-"} if have else {})
                try:
                    if answer.status == 200 and have:  # a layer of the base: it has no ranges
                        there, have = hashlib.sha256(), out.truncate(0)
                    elif answer.status not in (200, 206):
                        raise ValueError(f"the server answers {answer.status}")
                    while chunk := answer.read(min(_CHUNK, self.size - have)):
                        out.write(chunk)
                        out.flush()
                        there.update(chunk)
                        have += len(chunk)
                        self._grown(min(have, self.size - 1))
                finally:
                    connection.close()
                if have < self.size:
                    raise ValueError("the connection broke")
            if have != self.size or "sha256:" + there.hexdigest() != self._digest:
                out.truncate(0)
                self._grown(0)
                raise ValueError("these are other bytes")
            self._grown(have)

    def _grown(self, have: int) -> None:
        with self._changed:
            self.have = have
            self._changed.notify_all()


class Relay(http.server.ThreadingHTTPServer):
    """The part of a registry that docker pulls one image from. logins: user by Authorization header. Thread-safe."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, port: int, uplink: Uplink, blobs: dict[str, Blob], logins: dict[str, str]) -> None:
        self.uplink = uplink
        self.blobs = blobs
        self._logins = logins
        self._sent: dict[str, dict[str, int]] = {user: {} for user in logins.values()}
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), Handler)

    def user(self, header: str) -> str | None:
        """Who sends this header."""
        matches = [user for login, user in self._logins.items() if hmac.compare_digest(login.encode(), header.encode())]
        return matches[0] if matches else None

    def count(self, user: str, digest: str, size: int) -> None:
        """Bytes of a blob that a user gets."""
        with self._lock:
            self._sent[user][digest] = self._sent[user].get(digest, 0) + size

    def counted(self) -> str:
        """User to blob to bytes, as JSON."""
        with self._lock:
            return json.dumps(self._sent)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client has gone."""


class Handler(http.server.BaseHTTPRequestHandler):
    """A connection of docker."""

    protocol_version = "HTTP/1.1"
    # As in `Server`.
    default_request_version = "HTTP/1.0"
    timeout = _SILENCE
    server: Relay

    def do_GET(self) -> None:
        """Send a blob, or pass on what the server answers."""
        user = self.server.user(self.headers.get("Authorization", ""))
        found = _BLOB.fullmatch(self.path)
        if user is None:
            self._answer(401, {"WWW-Authenticate": 'Basic realm="builder"'}, b"")
        elif found is None:
            self._pass_on()
        elif found[1] not in self.server.blobs:
            self._answer(404, {}, b"")
        else:
            self._blob(user, found[1], self.server.blobs[found[1]])

    do_HEAD = do_GET

    def _pass_on(self) -> None:
        try:
            connection, answer = self.server.uplink.get(self.path, {})
            try:
                body = answer.read(_MOST)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException):
            self._answer(502, {}, b"")
            return
        kept = {"Content-Type", "Docker-Content-Digest", "Docker-Distribution-API-Version"}
        self._answer(answer.status, {name: value for name, value in answer.getheaders() if name in kept}, body)

    def _blob(self, user: str, digest: str, blob: Blob) -> None:
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        end = min(int(asked[2]) + 1, blob.size) if asked and asked[2] else blob.size
        if start >= end:
            asked, start, end = None, 0, blob.size
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{blob.size}")
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Docker-Content-Digest", digest)
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        blob.come(self.server.uplink, self.path)
        with blob.file.open("ab+") as file:
            while start < end:
                if not blob.wait(start):
                    self.close_connection = True
                    return
                count = min(blob.have, end, start + 16 * _CHUNK) - start
                self.server.count(user, digest, max(count, 0))
                sent = self.connection.sendfile(file, start, count) if count > 0 else 0
                if sent < count:  # the file was emptied meanwhile
                    self.close_connection = True
                    return
                start += sent

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def kept_folder(image: str) -> pathlib.Path:
    """The folder of an image, locked for this process. What older deployments left is removed. Raises OSError."""
    root = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "builder-relay"
    folder = root / image[7:]
    folder.mkdir(0o700, parents=True, exist_ok=True)
    for other in root.iterdir():
        if other != folder and time.time() - other.stat().st_mtime > _KEPT:
            shutil.rmtree(other, ignore_errors=True)
    os.utime(folder)
    lock = os.open(folder, os.O_RDONLY)  # never closed
    # The relay of a connection that broke ends when it has heard nothing for a while.
    end = time.monotonic() + _SILENCE + 10
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return folder
        except BlockingIOError:
            if time.monotonic() > end:
                raise OSError("another deployment passes this image on") from None
            time.sleep(0.5)


def lines() -> Iterator[bytes]:
    """The lines of standard input, as long as they come in time."""
    rest = b""
    while select.select([0], [], [], _SILENCE)[0]:
        data = os.read(0, 1 << 16)
        if not data:
            return
        *whole, rest = (rest + data).split(b"\n")
        yield from whole


def main() -> None:
    """The first line of the input: image, blobs (digest to size), users, port and token of the server, ports to try."""
    received = lines()
    asked = json.loads(next(received))
    folder = kept_folder(asked["image"])
    digests: set[str] = {digest[7:] for digest in asked["blobs"]}
    for path in folder.iterdir():
        if path.name not in digests:
            path.unlink()
    blobs = {digest: Blob(folder, digest, size) for digest, size in asked["blobs"].items()}
    token = asked["token"]
    logins = {"Basic " + base64.b64encode(f"{user}:{token}".encode()).decode(): user for user in asked["users"]}
    for port in (*asked["ports"], 0):
        try:
            relay = Relay(port, Uplink(asked["port"], token), blobs, logins)
            break
        except OSError:
            continue
    threading.Thread(target=relay.serve_forever, daemon=True).start()
    print(json.dumps(relay.server_address[1]), flush=True)
    for line in received:
        if line == b"count":
            print(relay.counted(), flush=True)
        elif line == b"done":
            shutil.rmtree(folder, ignore_errors=True)
            return


if __name__ == "__main__":
    main()
