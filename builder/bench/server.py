"""The streamed requests of `builder bench` to an OpenAI-compatible server: when tokens arrive, and how many."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from builder.bench.stream import pieces, session, text
from builder.errors import NetworkError, UsageError

if TYPE_CHECKING:
    import requests

TIMEOUT = 900.0
FASTEST = 20_000.0
"""Tokens per second of one request that no GB10 decodes: its memory moves 273 GB/s, so that even a model with 0.1 GB of
active weights and eight accepted tokens per step stays near it. More means that the stream was held back."""
_ENOUGH = 16
"""Tokens from which on they cannot all be in one step, as a few tokens can with speculative decoding."""
_PAUSE = 0.0005
"""Seconds between two chunks that a server made one after the other; reading what is there already takes less."""
_FEW = 16
"""Fewer than one pause in so many chunks are the client's own: a server pauses after each step."""
_MOST_TOKENS = 10_000_000
_COUNTS = ("prompt_tokens", "completion_tokens")
"""The numbers of tokens in the usage of an answer."""
_LONGEST_EVENT = 1 << 20
"""Bytes; all tokens of an answer that was held back are one event."""


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
            raise UsageError(f"{url[:200]!r} is not a URL", id="bench-url-invalid", next="--url http://localhost:8000")
        if urlsplit(base).username is not None:
            raise UsageError(
                "the URL contains a login", id="bench-url-login", next="set VLLM_API_KEY to the server's key instead"
            )
        self.url = base if base.endswith("/v1") else f"{base}/v1"
        self.session = session()
        if key:
            self.session.headers["Authorization"] = f"Bearer {key}"
        self.think = think
        self._reading = Lock()
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
        nexts = {
            400: f"--prompt-tokens and --output-tokens that fit into max_model_len of {self.url}/models",
            401: "set VLLM_API_KEY to the server's key",
            404: f"--model, as in {self.url}/models",
        }
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

    def _read(self, answer: requests.Response, begin: float, clock: Callable[[], float], asked: int) -> Sample:
        arrived: list[float] = []
        usage: dict[str, int] = {}
        reasoning = content = 0
        for piece in pieces(answer, TIMEOUT, _LONGEST_EVENT):
            at, before = clock(), reasoning + content
            for line in piece:
                if not line.startswith(b"data: ") or line == b"data: [DONE]":
                    continue
                try:
                    # One request's at a time: an event may take forty times its length, and there may be 256 requests.
                    with self._reading:
                        counts, kinds = _event(line[len(b"data: ") :])
                except (ValueError, TypeError, AttributeError, RecursionError) as error:
                    raise NetworkError("the stream is not JSON", id="bench-stream-invalid", where=self.url) from error
                usage = counts or usage
                content += kinds.count("content")
                reasoning += len(kinds) - kinds.count("content") - kinds.count(None)
            if reasoning + content > before:
                arrived.append(at)
        prompt_tokens, output_tokens = self._counted(usage, asked, streamed=bool(arrived))
        ttft, decoding = arrived[0] - begin, arrived[-1] - arrived[0]
        decode = (output_tokens - 1) / decoding if output_tokens > 1 and decoding > 0 else None
        # The chunks of an answer that was held back follow each other without a pause, but for those of a busy client.
        pauses = [gap for one, other in pairwise(arrived) if (gap := other - one) >= _PAUSE]
        if decode is None or decode > FASTEST or sum(pauses) < decoding / 2 or len(pauses) < len(arrived) / _FEW:
            if output_tokens >= _ENOUGH:
                raise self._held_back(output_tokens)
            decode = None
        return Sample(
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            ttft=ttft,
            total=arrived[-1] - begin,
            prefill=prompt_tokens / ttft if ttft > 0 else None,
            decode=decode,
            reasoning_chunks=reasoning,
            answer_chunks=content,
        )

    def _counted(self, usage: dict[str, int], asked: int, *, streamed: bool) -> tuple[int, int]:
        """The tokens of the prompt and of the answer, as the server counts them. Raises NetworkError."""
        if not streamed or len(usage) < len(_COUNTS):
            raise NetworkError(
                "no tokens were streamed, or no usage was reported",
                id="bench-no-tokens",
                where=self.url,
                cause=f"all {asked} tokens may be reasoning that the server's parser holds back until it ends",
                next=f"--no-think, or --output-tokens {max(4096, 4 * asked)}",
            )
        prompt_tokens, output_tokens = (usage[name] for name in _COUNTS)
        if not (0 < prompt_tokens <= _MOST_TOKENS and 0 < output_tokens <= asked):
            raise NetworkError(
                f"the server counts {prompt_tokens} tokens of the prompt and {output_tokens} of the answer",
                id="bench-usage-impossible",
                where=self.url,
                cause=f"at most {asked} tokens of the answer were asked for",
                next="ask the server itself (--url), not a proxy before it",
            )
        return prompt_tokens, output_tokens

    def _held_back(self, tokens: int) -> NetworkError:
        return NetworkError(
            f"{tokens} tokens came all at once: no rate can be measured",
            id="bench-not-streamed",
            where=self.url,
            cause="a proxy holds the stream back, or the server does not stream",
            next="ask the server itself (--url), or turn the proxy's buffering off: proxy_buffering off, for nginx",
        )


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    clean = text.isprintable() and " " not in text
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0 and clean


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


def _event(text: bytes) -> tuple[dict[str, int], list[str | None]]:
    """The numbers of tokens in an event, and the kinds of its deltas. Raises what a malformed one causes."""
    data = json.loads(text)
    usage = data.get("usage") or {}
    counts = {name: value for name in _COUNTS if isinstance(value := usage.get(name), int)}
    return counts, [_kind(choice.get("delta") or {}) for choice in data.get("choices") or ()]


def _kind(delta: dict[str, Any]) -> str | None:
    """The field of a delta that holds generated text: content, reasoning or reasoning_content; None without one.

    vLLM puts both into one delta when a step of speculation, or a slow reader, joins the end of the thought and the
    beginning of the answer: that is reasoning, too.
    """
    fields = [key for key, value in delta.items() if key != "role" and isinstance(value, str) and value]
    return next((key for key in fields if key != "content"), fields[0] if fields else None)
