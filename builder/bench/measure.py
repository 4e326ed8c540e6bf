"""Measures prefill and decode rates of an OpenAI-compatible vLLM server.

Every prompt has a nonce, so that no cached prefix is measured; `ignore_eos` makes the answer as long as requested;
the server counts the tokens; reasoning counts as decoding. From spark-vllm-guide section 10 and vllm-on-dgx-spark
table 2.
"""

from __future__ import annotations

import json
import statistics
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from builder.bench.stream import lines, session, text
from builder.errors import NetworkError, UsageError

if TYPE_CHECKING:
    import requests

_SENTENCE = "The DGX Spark is a compact GB10 system with 128 GB of unified memory. "
_WORDS_PER_SENTENCE = 13
TIMEOUT = 900.0


@dataclass(frozen=True)
class Scenario:
    """A length of prompt and answer. prompt_tokens is approximate; results have the server's exact count."""

    name: str
    prompt_tokens: int
    output_tokens: int


SCENARIOS = (
    Scenario("judge call", 58, 2),
    Scenario("medium prompt, short answer", 1834, 32),
    Scenario("long prompt, short answer", 7234, 32),
    Scenario("medium prompt, long answer", 1834, 108),
    Scenario("long prompt, long answer", 7234, 124),
)
"""The scenarios of vllm-on-dgx-spark, table 2."""


@dataclass(frozen=True)
class Sample:
    """One request: seconds, tokens, and rates in tokens per second (None without a time to divide by)."""

    prompt_tokens: int
    output_tokens: int
    ttft: float
    total: float
    prefill: float | None
    decode: float | None
    reasoning_chunks: int
    answer_chunks: int


@dataclass(frozen=True)
class Result:
    """The medians of a scenario's samples. together: tokens per second of all concurrent requests."""

    scenario: str
    runs: int
    prompt_tokens: int
    output_tokens: int
    ttft: float
    total: float
    prefill: float | None
    decode: float | None
    warnings: tuple[str, ...] = ()
    concurrency: int = 1
    together: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def prompt(tokens: int, nonce: str) -> str:
    """A text of about that many tokens. A new nonce gives it a prefix that no earlier request had."""
    return f"[run {nonce}] Read the text below, then reply.\n\n" + _SENTENCE * max(1, tokens // _WORDS_PER_SENTENCE)


class Server:
    """A running server. url: with or without /v1. key: the API key, never printed. think: turn thinking on or off;
    None: the server's default.

    Raises UsageError for an invalid URL, and NetworkError when the server does not return the name of its model.
    """

    def __init__(
        self, url: str, *, model: str | None = None, key: str | None = None, think: bool | None = None
    ) -> None:
        base = url.rstrip("/")
        if not _is_url(base):
            raise UsageError(f"{url!r} is not a URL", id="bench-url-invalid", next="--url http://localhost:8000")
        self.url = base if base.endswith("/v1") else f"{base}/v1"
        self.session = session()
        if key:
            self.session.headers["Authorization"] = f"Bearer {key}"
        self.think = think
        self.model = model or self._first_model()

    def _first_model(self) -> str:
        import requests

        try:
            answer = self.session.get(f"{self.url}/models", timeout=30, stream=True, allow_redirects=False)
        except requests.RequestException as error:
            raise self._unreachable(error) from error
        try:
            if answer.status_code != 200:
                raise self._refused(answer)
            return str(json.loads(text(answer, 30))["data"][0]["id"])
        except (requests.RequestException, ValueError, LookupError, TypeError, RecursionError) as error:
            raise NetworkError(
                "the server does not return the name of its model",
                id="bench-model-unknown",
                where=self.url,
                cause=_cause(error),
                next="--model NAME",
            ) from error

    def _unreachable(self, error: Exception) -> NetworkError:
        return NetworkError(
            "the server cannot be reached",
            id="bench-server-unreachable",
            where=self.url,
            cause=_cause(error),
            next=f"curl {self.url}/models; a large model takes 10 to 15 minutes to load: docker logs -f NAME",
        )

    def _refused(self, answer: requests.Response) -> NetworkError:
        nexts = {401: "set VLLM_API_KEY to the server's key", 404: f"--model, as in {self.url}/models"}
        said = " ".join(text(answer, 30)[:300].split())
        what = f"the server answered {answer.status_code}"
        return NetworkError(
            what, id="bench-request-refused", where=self.url, cause=said, next=nexts.get(answer.status_code, "")
        )

    def ask(self, question: str, tokens: int, clock: Callable[[], float] = time.perf_counter) -> Sample:
        """One streamed request. Raises NetworkError."""
        import requests

        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": question}],
            "max_tokens": tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
        }
        if self.think is not None:
            body["chat_template_kwargs"] = {"enable_thinking": self.think}
        begin = clock()
        try:
            with self.session.post(
                f"{self.url}/chat/completions", json=body, stream=True, timeout=TIMEOUT, allow_redirects=False
            ) as answer:
                if answer.status_code != 200:
                    raise self._refused(answer)
                return self._read(answer, begin, clock, tokens)
        except requests.RequestException as error:
            raise self._unreachable(error) from error

    def _read(self, answer: requests.Response, begin: float, clock: Callable[[], float], body_tokens: int) -> Sample:
        first = last = None
        usage: dict[str, Any] = {}
        reasoning = content = 0
        for line in lines(answer, TIMEOUT):
            if not line.startswith(b"data: ") or line == b"data: [DONE]":
                continue
            try:
                data = json.loads(line[len(b"data: ") :])
                usage = data.get("usage") or usage
                kinds = [_kind(choice.get("delta") or {}) for choice in data.get("choices") or ()]
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                raise NetworkError("the stream is not JSON", id="bench-stream-invalid", where=self.url) from error
            for kind in kinds:
                if kind is None:
                    continue
                last = clock()
                first = last if first is None else first
                content, reasoning = content + (kind == "content"), reasoning + (kind != "content")
        try:
            prompt_tokens, output_tokens = (int(usage[name]) for name in ("prompt_tokens", "completion_tokens"))
        except (LookupError, TypeError, ValueError, OverflowError):
            usage = {}
        if first is None or last is None or not usage:
            raise NetworkError(
                "no tokens were streamed, or no usage was reported",
                id="bench-no-tokens",
                where=self.url,
                cause=f"all {body_tokens} tokens may be reasoning that the server's parser holds back until it ends",
                next=f"--no-think, or --output-tokens {max(4096, 4 * body_tokens)}",
            )
        ttft, decoding = first - begin, last - first
        return Sample(
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            ttft=ttft,
            total=last - begin,
            prefill=prompt_tokens / ttft if ttft > 0 else None,
            decode=(output_tokens - 1) / decoding if output_tokens > 1 and decoding > 0 else None,
            reasoning_chunks=reasoning,
            answer_chunks=content,
        )


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0 and text.isprintable()


def _cause(error: Exception) -> str:
    """The cause of a failed request. The text of the error itself repeats the URL and may contain the request."""
    import requests

    answer = getattr(error, "response", None)
    if isinstance(error, requests.HTTPError) and answer is not None:
        return f"the server answered {answer.status_code}"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return f"the answer is not that of an OpenAI-compatible server ({type(error).__name__})"


def _kind(delta: dict[str, Any]) -> str | None:
    """The field of a delta that holds generated text: content, reasoning or reasoning_content; None without one."""
    return next((key for key, value in delta.items() if key != "role" and isinstance(value, str) and value), None)


def measure(server: Server, scenario: Scenario, runs: int, *, warm_up: bool = True, concurrency: int = 1) -> Result:
    """Medians over `runs` times `concurrency` requests, after a warm-up request that is not counted.

    Raises NetworkError. The warm-up may answer nothing: a reasoning parser may hold its few tokens back.
    """
    if warm_up:
        try:
            server.ask(prompt(64, uuid.uuid4().hex[:12]), 8)
        except NetworkError as error:
            if error.id != "bench-no-tokens":
                raise
    samples: list[Sample] = []
    rates: list[float | None] = []
    for _ in range(runs):
        begin = time.perf_counter()
        with ThreadPoolExecutor(concurrency) as pool:
            asked = [prompt(scenario.prompt_tokens, uuid.uuid4().hex[:12]) for _ in range(concurrency)]
            found = list(pool.map(lambda text: server.ask(text, scenario.output_tokens), asked))
        seconds = time.perf_counter() - begin
        samples += found
        rates.append(sum(sample.output_tokens for sample in found) / seconds if seconds > 0 else None)
    last = samples[-1]
    warnings = []
    if last.output_tokens < 64:
        warnings.append("fewer than 64 tokens: the decode rate is noisy")
    if (last.reasoning_chunks + last.answer_chunks) < last.output_tokens / 4:
        warnings.append("few chunks for many tokens: the decode rate may be wrong")
    if last.reasoning_chunks:
        warnings.append("reasoning tokens are counted")
    return Result(
        scenario=scenario.name,
        runs=runs,
        prompt_tokens=last.prompt_tokens,
        output_tokens=last.output_tokens,
        ttft=statistics.median(sample.ttft for sample in samples),
        total=statistics.median(sample.total for sample in samples),
        prefill=_median([sample.prefill for sample in samples]),
        decode=_median([sample.decode for sample in samples]),
        warnings=tuple(warnings),
        concurrency=concurrency,
        together=_median(rates) if concurrency > 1 else None,
    )


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
