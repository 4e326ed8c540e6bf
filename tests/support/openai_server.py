"""A fake vLLM server, healthy or with faults. Run as a program: PORT FAULT…; it prints a log like vLLM's."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

START = "(APIServer pid=1) INFO 11-21 08:00:00 [api_server.py:100] Starting vLLM server on http://0.0.0.0:8000"
THOUGHT, ANSWER = ["12*17", " is 12*10", " + 12*7"], ["The answer", " is 204", "."]


class Handler(BaseHTTPRequestHandler):
    """Answers with the faults in `server.bad`, by the names in the code below."""

    protocol_version = "HTTP/1.1"

    @property
    def bad(self) -> set[str]:
        return self.server.bad  # type: ignore[attr-defined,no-any-return]

    def do_GET(self) -> None:
        if self.path == "/health":
            self.plain("" if "unhealthy" not in self.bad else "starting", 503 if "unhealthy" in self.bad else 200)
        elif self.path == "/v1/models":
            name = "other" if "other model" in self.bad else "small"
            self.json({"data": [{"id": name, "max_model_len": 4096 if "short" in self.bad else 16384}]})
        elif self.path == "/metrics":
            self.plain(self.metrics())
        else:
            self.plain("not found", 404)

    def metrics(self) -> str:
        if "no speculation" in self.bad:
            return '# HELP vllm:num_requests_running x\nvllm:num_requests_running{model_name="small"} 0.0\n'
        drafted, accepted = self.server.drafted, self.server.accepted  # type: ignore[attr-defined]
        return (
            "# TYPE vllm:spec_decode_num_draft_tokens counter\n"
            f'vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="small"}} {drafted:.1f}\n'
            f'vllm:spec_decode_num_draft_tokens_created{{engine="0",model_name="small"}} 1.7e+09\n'
            f'vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="small"}} {accepted:.1f}\n'
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append({**body, "key": self.headers.get("Authorization")})  # type: ignore[attr-defined]
        text = body["messages"][0]["content"]
        if "hang" in self.bad:
            self.server.ended.wait(30)  # type: ignore[attr-defined]
            return
        if "500" in self.bad:
            self.json({"error": {"message": "EngineCore encountered an issue"}}, 500)
        elif "not json" in self.bad:
            self.plain("<html>")
        elif body.get("stream"):
            self.stream(body)
        elif "tools" in body:
            self.json({"choices": [self.tool_call()]})
        else:
            if text.startswith("Repeat"):
                self.server.drafted += 0 if "nothing drafted" in self.bad else 300  # type: ignore[attr-defined]
                self.server.accepted += 6 if "low acceptance" in self.bad else 240  # type: ignore[attr-defined]
            self.json({"choices": [self.choice()]})

    def choice(self) -> dict[str, Any]:
        if "empty" in self.bad:
            return {"message": {"role": "assistant", "content": None}, "finish_reason": "length"}
        content = "".join(ANSWER)
        if "wrong" in self.bad:
            content = "The answer is 1204."
        if "garbage" in self.bad:
            content = "!!!!!!!!!!!!"
        return {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}

    def tool_call(self) -> dict[str, Any]:
        if "no tool call" in self.bad:
            return {"message": {"content": "It is sunny."}, "finish_reason": "stop"}
        arguments = '{"city": "Par' if "broken arguments" in self.bad else '{"city": "Paris"}'
        name = "get_time" if "wrong tool" in self.bad else "get_weather"
        call = {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}
        return {"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}

    def stream(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        field = "reasoning_content" if "old reasoning" in self.bad else "reasoning"
        answer = ["The answer is", " 1204"] if "wrong" in self.bad else ANSWER
        pieces = [] if "no reasoning" in self.bad else [(field, text) for text in THOUGHT]
        pieces += [("content", "<think>hm</think>")] if "leaks" in self.bad else []
        pieces += [("content", text) for text in answer]
        if body.get("ignore_eos"):
            pieces = [("content", "x")] * body["max_tokens"]
        tokens = len(pieces)
        if "at once" in self.bad:
            tokens, pieces = 40, [("content", "".join(answer))]
        pause = 0.2 if "slow" in self.bad else 0.001
        for name, text in pieces:
            self.event({"choices": [{"delta": {name: text}, "finish_reason": None}]})
            if "broken event" in self.bad:
                self.raw(b'data: {"choices": [{"del\n\n')
            if "cut" in self.bad:
                self.wfile.flush()
                self.close_connection = True
                return
            time.sleep(pause)
        self.event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        if "no usage" not in self.bad:
            self.event({"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": tokens}})
        if "no end" not in self.bad:
            self.raw(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, data: Any) -> None:
        self.raw(b"data: " + json.dumps(data).encode() + b"\n\n")

    def raw(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def json(self, data: Any, status: int = 200) -> None:
        self.plain(json.dumps(data), status)

    def plain(self, text: str, status: int = 200) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Quiet(ThreadingHTTPServer):
    """Ignores clients that hang up."""

    def handle_error(self, request: object, client_address: object) -> None:
        pass


def make(port: int, *bad: str) -> ThreadingHTTPServer:
    server = Quiet(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    for name, value in {"bad": set(bad), "seen": [], "drafted": 0, "accepted": 0, "ended": threading.Event()}.items():
        setattr(server, name, value)
    return server


@contextlib.contextmanager
def serving(*bad: str) -> Iterator[tuple[str, Any]]:
    """A server on a free port; yields its address and the server."""
    server = make(0, *bad)
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
    lines = [START]
    if "warns" in bad:
        lines.append("(EngineCore pid=9) WARNING 11-21 08:00:02 [x.py:1] Something is odd")
    if "dies" in bad:
        lines.append("RuntimeError: no kernel image is available for execution on the device")
    return "\n".join(lines) + "\n"


def main() -> None:
    port, bad = int(sys.argv[1]), sys.argv[2:]
    print(log(bad), end="", flush=True)
    if "dies" in bad:
        sys.exit(1)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in bad else lambda *_: sys.exit(0))
    make(port, *bad).serve_forever()


if __name__ == "__main__":
    main()
