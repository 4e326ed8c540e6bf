"""A local HTTP server whose every path is a small script of answers: broken bodies, waits, ranges, redirects."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from builder.model.inputs import Input, Location
from tests.support.loopback import listening

Answer = Callable[["Handler"], None]


@dataclass
class Server:
    """Paths to answers; a list is used up from the front, its last answer stays. Records the requests."""

    address: str = ""
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def on(self, path: str, *answers: Answer) -> None:
        """The answers of `path`, in order."""
        self.answers[path] = list(answers)

    def count(self, path: str) -> int:
        """The number of requests for `path`."""
        return sum(asked == path for asked, _ in self.asked)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    owner: Server

    def do_GET(self) -> None:
        """Answer from the script."""
        self.owner.asked.append((self.path, dict(self.headers)))
        script = self.owner.answers.get(self.path)
        answer = status(404) if not script else script.pop(0) if len(script) > 1 else script[0]
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            answer(self)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def reply(self, code: int, headers: dict[str, str], body: bytes = b"") -> None:
        """Send an answer; a Content-Length in `headers` wins over the real one."""
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def status(code: int, **headers: str) -> Answer:
    """An answer without a body; header names are spelled with _ for -."""
    return lambda handler: handler.reply(code, {name.replace("_", "-"): value for name, value in headers.items()})


def body(data: bytes, ranges: bool = True, content_type: str = "application/octet-stream") -> Answer:
    """The file, or the part of it that was asked for."""

    def answer(handler: Handler) -> None:
        wanted = handler.headers.get("Range", "")
        if ranges and wanted:
            start = int(wanted.removeprefix("bytes=").partition("-")[0])
            tail = f"bytes {start}-{len(data) - 1}/{len(data)}"
            handler.reply(206, {"Content-Range": tail}, data[start:])
        else:
            handler.reply(200, {"Content-Type": content_type}, data)

    return answer


def broken(data: bytes, after: int) -> Answer:
    """Promises the whole file, sends `after` bytes and hangs up."""

    def answer(handler: Handler) -> None:
        handler.reply(200, {"Content-Length": str(len(data))}, data[:after])
        handler.close_connection = True

    return answer


def slow(data: bytes, pause: float, stop: threading.Event) -> Answer:
    """Sends one kilobyte, waits `pause` seconds, and so on."""

    def answer(handler: Handler) -> None:
        handler.reply(200, {"Content-Length": str(len(data))})
        for start in range(0, len(data), 1024):
            handler.wfile.write(data[start : start + 1024])
            if stop.wait(pause):
                break
        handler.close_connection = True

    return answer


def silent(stop: threading.Event) -> Answer:
    """Sends headers and then nothing."""

    def answer(handler: Handler) -> None:
        handler.reply(200, {"Content-Length": "300000"}, b"x")
        stop.wait(30)
        handler.close_connection = True

    return answer


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """A running server on 127.0.0.1."""
    owner = Server()
    with listening(Handler, owner=owner) as host:
        owner.address = f"http://{host}"
        yield owner


def deb(data: bytes, path: str = "pool/main/t/tool/tool_1+b1_arm64.deb", name: str = "tool 1+b1") -> Input:
    """An input for `data` on a Debian mirror and a snapshot archive."""
    locations = (Location("debian", path), Location("snapshot", f"20261121T000000Z/{path}"))
    return Input("deb", name, path.rpartition("/")[2], hashlib.sha256(data).hexdigest(), len(data), locations)


def wait_until(condition: Callable[[], bool], seconds: float = 5) -> None:
    """Poll; fails after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
