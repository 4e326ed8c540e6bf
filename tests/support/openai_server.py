"""Stands in for vLLM: replays what a real one said, whole or with faults."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.recorded_vllm import (
    NEWEST,
    Said,
    counters,
    faulty_answer,
    faulty_events,
    longer,
    said,
    server_log,
    which,
)

START = next(line for line in server_log(NEWEST) if "Starting vLLM server" in line)


class Handler(BaseHTTPRequestHandler):
    """Answers with the faults in `server.bad`, by the names here and in `recorded_vllm`."""

    protocol_version = "HTTP/1.1"

    @property
    def bad(self) -> set[str]:
        return self.server.bad  # type: ignore[attr-defined,no-any-return]

    @property
    def version(self) -> str:
        return self.server.version  # type: ignore[attr-defined,no-any-return]

    def do_GET(self) -> None:
        if self.path == "/health" and "unhealthy" in self.bad:
            self.plain(Said(503, "", "starting"))
        elif self.path == "/metrics":
            self.plain(Said(200, "text/plain", counters(self.version, self.server.copied, self.bad)))  # type: ignore[attr-defined]
        elif self.path == "/v1/models":
            found = json.loads(said(self.version, "v1/models").text)
            if "other model" in self.bad:
                found["data"][0]["id"] = "other"
            if "short" in self.bad:
                found["data"][0]["max_model_len"] = 4096
            self.plain(Said(200, "application/json", json.dumps(found)))
        else:
            self.plain(said(self.version, "health" if self.path == "/health" else "absent"))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append({**body, "key": self.headers.get("Authorization")})  # type: ignore[attr-defined]
        name = which(body)
        answer = said(self.version, "thought-only" if "empty" in self.bad and name == "answer" else name)
        if "hang" in self.bad:
            self.server.ended.wait(30)  # type: ignore[attr-defined]
        elif "500" in self.bad:
            self.plain(Said(500, "application/json", '{"error": {"message": "EngineCore encountered an issue"}}'))
        elif "not json" in self.bad:
            self.plain(Said(200, "text/html", "<html>"))
        elif answer.status != 200:
            self.plain(answer)
        elif answer.events:
            events = longer(answer.events, body["max_tokens"]) if name == "bench" else list(answer.events)
            self.stream(faulty_events(events, self.bad))
        else:
            self.server.copied |= name == "copy"  # type: ignore[attr-defined]
            self.plain(Said(200, answer.type, faulty_answer(answer.text, self.bad)))

    def stream(self, events: list[Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, event in enumerate(events):
            self.event(event)
            if number and "broken event" in self.bad:
                self.raw(b'data: {"choices": [{"del\n\n')
            if number and "cut" in self.bad:
                self.wfile.flush()
                self.close_connection = True
                return
            time.sleep(0.2 if "slow" in self.bad else 0.02 if "joined" in self.bad else 0.004)
        self.wfile.write(b"0\r\n\r\n")

    def event(self, data: Any) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        self.raw(b"data: " + text.encode() + b"\n\n")

    def raw(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def plain(self, answer: Said) -> None:
        data = answer.text.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Quiet(ThreadingHTTPServer):
    """Ignores clients that hang up."""

    def handle_error(self, request: object, client_address: object) -> None:
        pass


def make(port: int, *bad: str, version: str = NEWEST) -> ThreadingHTTPServer:
    server = Quiet(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    state = {"bad": set(bad), "version": version, "seen": [], "copied": False, "ended": threading.Event()}
    for name, value in state.items():
        setattr(server, name, value)
    return server


@contextlib.contextmanager
def serving(*bad: str, version: str = NEWEST) -> Iterator[tuple[str, Any]]:
    """A server on a free port; yields its address and the server."""
    server = make(0, *bad, version=version)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server
    finally:
        server.ended.set()  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()


def log(bad: list[str]) -> str:
    """What it prints."""
    lines = server_log(NEWEST)
    if "warns" in bad:
        lines.append("(EngineCore pid=9) WARNING 11-21 08:00:02 [x.py:1] Something is odd")
    if "dies" in bad:
        lines.append("RuntimeError: no kernel image is available for execution on the device")
    return "\n".join(lines) + "\n"
