"""An HTTP client of an OpenAI-compatible server: plain and streamed chat completions, metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import requests

from builder.bench.stream import SlowAnswer, lines, session, text
from builder.smoke.check import CheckFailed


@dataclass
class Stream:
    """A streamed answer. pieces: of the content. thoughts: pieces of the reasoning. fields: those that contained it."""

    pieces: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    fields: set[str] = field(default_factory=set)
    chunks: int = 0
    finish: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    done: bool = False

    @property
    def content(self) -> str:
        """The answer."""
        return "".join(self.pieces)

    @property
    def reasoning(self) -> str:
        """What it thought before."""
        return "".join(self.thoughts)


class Client:
    """An OpenAI-compatible server. url: without /v1. key: never printed. patience: seconds for a whole answer."""

    def __init__(self, url: str, model: str, *, key: str | None = None, patience: float = 600) -> None:
        self.url, self.model, self.key, self.patience = url, model, key, patience
        self.session = session()
        # Requests to this machine must not use a proxy of the environment.
        self.session.trust_env = False
        if key:
            self.session.headers["Authorization"] = f"Bearer {key}"

    def get(self, path: str, timeout: float = 30) -> str:
        """The text of a GET. Raises CheckFailed without an answer of status 200."""
        try:
            with self.session.get(self.url + path, timeout=timeout, stream=True, allow_redirects=False) as answer:
                return text(_good(answer, path), timeout)
        except requests.RequestException as error:
            raise CheckFailed(f"{path}: {_why(error, timeout)}") from error

    def json(self, path: str) -> Any:
        """GET of JSON."""
        answer = self.get(path)
        try:
            return json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise CheckFailed(f"{path} does not answer with JSON: {answer[:200]!r}") from error

    def chat(self, question: str, **more: Any) -> dict[str, Any]:
        """One chat completion: its first choice. Raises CheckFailed."""
        path = "/v1/chat/completions"
        try:
            with self._post(path, self._body(question, more)) as opened:
                answer = text(_good(opened, path), self.patience)
            choice = json.loads(answer)["choices"][0]
        except requests.RequestException as error:
            raise CheckFailed(f"{path}: {_why(error, self.patience)}") from error
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise CheckFailed(f"{path} does not answer with a completion: {answer[:200]!r}") from error
        if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
            raise CheckFailed(f"{path} answers with a choice that has no message: {answer[:200]!r}")
        return choice

    def stream(self, text: str, **more: Any) -> Stream:
        """One streamed chat completion. Raises CheckFailed."""
        path = "/v1/chat/completions"
        body = self._body(text, {"stream": True, "stream_options": {"include_usage": True}, **more})
        found = Stream()
        try:
            with self._post(path, body) as answer:
                for data in self._events(_good(answer, path)):
                    _take(found, data)
        except requests.RequestException as error:
            raise CheckFailed(f"the stream broke after {found.chunks} chunks: {_why(error, self.patience)}") from error
        return found

    def _post(self, path: str, body: dict[str, Any]) -> requests.Response:
        options: dict[str, Any] = {"timeout": self.patience, "stream": True, "allow_redirects": False}
        return self.session.post(self.url + path, json=body, **options)

    def _events(self, answer: requests.Response) -> Iterator[dict[str, Any] | None]:
        for line in lines(answer, self.patience):
            if not line or line.startswith(b":"):
                continue
            if not line.startswith(b"data: "):
                raise CheckFailed(f"the stream has a line that is no event: {line[:200]!r}")
            if line == b"data: [DONE]":
                yield None
                continue
            try:
                data = json.loads(line[len(b"data: ") :])
            except (ValueError, RecursionError) as error:
                raise CheckFailed(f"the stream has an event that is not JSON: {line[:200]!r}") from error
            if not isinstance(data, dict):
                raise CheckFailed(f"the stream has an event that is no object: {line[:200]!r}")
            yield data

    def _body(self, text: str, more: dict[str, Any]) -> dict[str, Any]:
        return {"model": self.model, "messages": [{"role": "user", "content": text}], "temperature": 0, **more}


def _take(found: Stream, data: dict[str, Any] | None) -> None:
    if data is None:
        found.done = True
        return
    if "error" in data:
        raise CheckFailed(f"the stream has an error: {str(data['error'])[:300]}")
    found.usage = data.get("usage") or found.usage
    for choice in data.get("choices") or ():
        delta = choice.get("delta") or {}
        found.finish = choice.get("finish_reason") or found.finish
        found.pieces.append(delta.get("content") or "")
        thought = next((name for name in ("reasoning", "reasoning_content") if delta.get(name)), None)
        if thought:
            found.thoughts.append(delta[thought])
            found.fields.add(thought)
        found.chunks += bool(thought or delta.get("content"))


def counters(text: str) -> dict[str, float]:
    """Prometheus text format: the value of each metric, summed over its labels."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = re.fullmatch(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{.*\})?\s+(\S+)(?:\s+-?\d+)?", line.strip())
        if match:
            try:
                found[match[1]] = found.get(match[1], 0.0) + float(match[2])
            except ValueError as error:
                raise CheckFailed(f"/metrics has a value that is no number: {line[:200]!r}") from error
    return found


def _good(answer: requests.Response, path: str) -> requests.Response:
    if answer.status_code != 200:
        raise CheckFailed(f"{path} answers {answer.status_code}: {text(answer, 30).strip()[:300]}")
    return answer


def _why(error: requests.RequestException, timeout: float) -> str:
    if isinstance(error, SlowAnswer):
        return str(error)
    if isinstance(error, requests.Timeout) or "timed out" in str(error).lower():
        return f"nothing came for {timeout:g} s"
    return f"the connection broke ({type(error).__name__})"
