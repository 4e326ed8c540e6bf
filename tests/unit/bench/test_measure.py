"""The benchmark against a server with known rates."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from builder.bench.measure import SCENARIOS, Scenario, measure, prompt
from builder.bench.server import Server
from builder.errors import NetworkError, UsageError
from tests.support.errors import fails

TTFT, STEP = 0.20, 0.02


class Fake(BaseHTTPRequestHandler):
    """Streams like vLLM: TTFT seconds to the first token, STEP between two, the first half as reasoning."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[dict[str, Any]]] = []
    status = 200
    silent = False
    close = False
    """Answer like HTTP/1.0: neither chunks nor a length, the connection ends the answer."""
    together = False
    """Send the whole answer at once, as a proxy that holds it back."""
    counted: int | None = None
    """The tokens of the answer that are reported, instead of the true ones."""
    holds = 0
    """Tokens that a reasoning parser holds back."""

    def do_GET(self) -> None:
        self._plain({"data": [{"id": "tiny"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).seen.append({**body, "key": self.headers.get("Authorization")})
        if self.status != 200:
            self.send_response(self.status)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"nope")
            return
        self.send_response(200)
        self.send_header(*(("Connection", "close") if self.close else ("Transfer-Encoding", "chunked")))
        self.end_headers()
        count = body["max_tokens"]
        self.held = bytearray()
        time.sleep(TTFT)
        for number in range(0 if self.silent else count):
            if number and not self.together:
                time.sleep(STEP)
            if number < self.holds:
                continue
            field = "reasoning" if number < count // 2 else "content"
            self._chunk({"choices": [{"delta": {"role": "assistant", field: "x"}}]})
        counted = count if self.counted is None else self.counted
        self._chunk({"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": counted}})
        self._raw(b"data: [DONE]\n\n")
        self.wfile.write(bytes(self.held) + (b"" if self.close else b"0\r\n\r\n"))

    def _plain(self, data: Any) -> None:
        text = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _chunk(self, data: Any) -> None:
        self._raw(b"data: " + json.dumps(data).encode() + b"\n\n")

    def _raw(self, data: bytes) -> None:
        sent = data if self.close else f"{len(data):x}\r\n".encode() + data + b"\r\n"
        if self.together:
            self.held += sent
        else:
            self.wfile.write(sent)
            self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    Fake.seen, Fake.status, Fake.silent, Fake.holds = [], 200, False, 0
    Fake.close, Fake.together, Fake.counted = False, False, None
    server = ThreadingHTTPServer(("127.0.0.1", 0), Fake)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_known_rates_are_measured(url: str) -> None:
    result = measure(Server(url), Scenario("x", 1000, 40), 3)
    assert result.ttft == pytest.approx(TTFT, rel=0.25)
    assert result.prefill == pytest.approx(1000 / TTFT, rel=0.25)
    assert result.decode == pytest.approx(1 / STEP, rel=0.25)
    assert result.output_tokens == 40
    assert "reasoning tokens are counted" in result.warnings


def test_requests_prevent_cached_prefixes_and_short_answers(url: str) -> None:
    measure(Server(url, key="secret", think=False), Scenario("x", 100, 2), 2)
    assert [item["max_tokens"] for item in Fake.seen] == [8, 2, 2], "one request warms up"
    for item in Fake.seen:
        assert item["ignore_eos"] is True
        assert item["stream_options"] == {"include_usage": True}
        assert item["chat_template_kwargs"] == {"enable_thinking": False}
        assert item["key"] == "Bearer secret"
        assert item["model"] == "tiny"
    starts = {item["messages"][0]["content"][:18] for item in Fake.seen}
    assert len(starts) == 3, "no two prompts begin alike"


def test_two_prompts_share_no_prefix_and_have_about_the_length() -> None:
    one, other = prompt(2000, "a"), prompt(2000, "b")
    assert one[:7] != other[:7]
    assert len(one.split()) == pytest.approx(2000, rel=0.1)


def test_the_five_scenarios_of_the_reference() -> None:
    asked = [(item.prompt_tokens, item.output_tokens) for item in SCENARIOS]
    assert asked == [(58, 2), (1834, 32), (7234, 32), (1834, 108), (7234, 124)]


def test_errors_name_the_server_and_not_the_key(url: str) -> None:
    Fake.status = 400
    with fails(NetworkError, "bench-request-refused") as caught:
        Server(url, key="secret").ask("x", 2)
    assert "400" in caught.value.what
    assert "secret" not in str(caught.value)
    Fake.status, Fake.silent = 200, True
    with fails(NetworkError, "bench-no-tokens"):
        Server(url).ask("x", 2)
    with fails(NetworkError, "bench-server-unreachable") as caught:
        Server("http://127.0.0.1:9")
    assert "--model" not in caught.value.next, "another name does not help"
    with fails(UsageError, "bench-url-invalid"):
        Server("localhost:8000")


@pytest.mark.parametrize(("status", "step"), [(401, "VLLM_API_KEY"), (404, "--model")])
def test_a_refused_request_has_a_next_step(url: str, status: int, step: str) -> None:
    server = Server(url)
    Fake.status = status
    with fails(NetworkError, "bench-request-refused") as caught:
        server.ask("x", 2)
    assert str(status) in caught.value.what
    assert step in caught.value.next


def test_a_server_that_holds_reasoning_back_is_measured_with_more_tokens(url: str) -> None:
    Fake.holds = 12
    found = measure(Server(url), Scenario("x", 100, 20), 1)
    assert (len(Fake.seen), found.output_tokens) == (2, 20), "the warm-up of 8 tokens may stream none"
    with fails(NetworkError, "bench-no-tokens") as caught:
        measure(Server(url), Scenario("x", 100, 10), 1)
    assert "all 10 tokens" in caught.value.cause
    assert "--output-tokens 4096" in caught.value.next


def test_requests_at_once_are_measured_together(url: str) -> None:
    found = measure(Server(url), Scenario("x", 100, 20), 2, warm_up=False, concurrency=4)
    assert len(Fake.seen) == 8
    assert found.together is not None
    assert found.decode is not None
    assert found.together > 1.5 * found.decode, "four streams, although each waits for its first token"
    assert measure(Server(url), Scenario("x", 100, 8), 1, warm_up=False).together is None


def test_a_stream_without_chunks_is_read_as_it_comes(url: str) -> None:
    Fake.close = True
    found = Server(url).ask("x", 20)
    assert found.ttft < found.total - 15 * STEP
    assert found.decode == pytest.approx(1 / STEP, rel=0.25)


@pytest.mark.parametrize("close", [True, False])
def test_an_answer_that_comes_all_at_once_has_no_rate(url: str, close: bool) -> None:
    Fake.close, Fake.together = close, True
    with fails(NetworkError, "bench-not-streamed") as caught:
        measure(Server(url), Scenario("x", 1000, 256), 1)
    assert "256 tokens came all at once" in caught.value.what
    found = measure(Server(url), Scenario("x", 100, 2), 1, warm_up=False)
    assert found.decode is None, "two tokens can be one step of speculative decoding"


@pytest.mark.parametrize("count", [21, 10**30, 0, -5])
def test_counts_of_tokens_that_cannot_be_are_refused(url: str, count: int) -> None:
    Fake.counted = count
    with fails(NetworkError, "bench-usage-impossible"):
        Server(url).ask("x", 20)
