"""The gpu checks of a running server, in the order in which they run: requests, tools, speed, log, end."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from typing import Any

from builder.bench.measure import Scenario, measure
from builder.bench.server import Server
from builder.errors import NetworkError
from builder.model.recipe import Recipe
from builder.smoke.check import CheckFailed, check_kind
from builder.smoke.gpu.client import counters
from builder.smoke.gpu.machine import Needs
from builder.smoke.gpu.server import Serving, gpu_processes
from builder.smoke.logscan import describe, scan_server_log

_SERVER = Needs("server")
_QUESTION = "What is 12*17? Answer with the number."
_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The current weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
_COPIED = "The quick brown fox jumps over the lazy dog while seven wizards quietly mix a dozen jugs of liquid. "
_AT_ONCE = 16
"""Tokens that may arrive in one chunk: more than any drafter proposes for one step."""
_DRAFTED, _ACCEPTED = "vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"


@check_kind("gpu", "serve-health", _SERVER)
def health(serving: Serving) -> str:
    """The server becomes healthy; every server check waits for that."""
    return f"healthy after {serving.seconds['start']:.0f} s"


@check_kind("gpu", "serve-warm-up", _SERVER)
def warm_up(serving: Serving, *, within: float = 300.0) -> str:
    """The first request, during which kernels are compiled, ends in `within` seconds; and the time of the second."""
    times = []
    for _ in range(2):
        begin = time.monotonic()
        serving.client.chat("ping", max_tokens=3)
        times.append(time.monotonic() - begin)
    text = f"first request {times[0]:.1f} s, second {times[1]:.1f} s"
    if times[0] > within:
        raise CheckFailed(f"{text}; at most {within:g} s expected")
    return text


@check_kind("gpu", "serve-models", _SERVER)
def models(serving: Serving) -> str:
    """The server lists the model under the name in its command, with the length in its command."""
    found = serving.client.json("/v1/models")
    try:
        listed = {str(item["id"]): item.get("max_model_len") for item in found["data"]}
    except (LookupError, TypeError, AttributeError) as error:
        raise CheckFailed(f"/v1/models does not answer with a list: {str(found)[:200]}") from error
    if serving.client.model not in listed:
        raise CheckFailed(f"/v1/models has {', '.join(listed) or 'none'}, not {serving.client.model}")
    length, asked = listed[serving.client.model], serving.recipe.serve.flags.get("max-model-len")
    if length is not None and isinstance(asked, int) and length != asked:
        raise CheckFailed(f"{serving.client.model} has a length of {length}, its command sets {asked}")
    return f"{serving.client.model}, length {length}"


@check_kind("gpu", "serve-answer", _SERVER)
def answer(serving: Serving, *, question: str = _QUESTION, expect: str = "204", max_tokens: int = 4096) -> str:
    """The answer to a question contains `expect` as a separate word."""
    choice = serving.client.chat(question, max_tokens=max_tokens)
    content = choice["message"].get("content")
    if not content:
        why = "all of max_tokens went into reasoning" if choice.get("finish_reason") == "length" else "no reason given"
        raise CheckFailed(f"the answer is empty ({why}, finish_reason {choice.get('finish_reason')})")
    return _right(str(content), expect)


@check_kind("gpu", "serve-stream", _SERVER)
def stream(serving: Serving, *, question: str = _QUESTION, expect: str = "204", max_tokens: int = 4096) -> str:
    """A streamed answer has valid events to its end, and with a reasoning parser a separate field of reasoning."""
    parser = serving.recipe.serve.flags.get("reasoning-parser")
    more: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": True}} if parser else {}
    found = serving.client.stream(question, max_tokens=max_tokens, **more)
    if not found.done or found.finish is None:
        raise CheckFailed(f"the stream ends without {'[DONE]' if not found.done else 'a finish_reason'}")
    if not found.usage.get("completion_tokens"):
        raise CheckFailed("the stream reports no usage, though it was asked to")
    if found.chunks < 2 and found.usage["completion_tokens"] > _AT_ONCE:
        raise CheckFailed(
            f"the answer is not streamed: {found.usage['completion_tokens']} tokens came in {found.chunks} chunk"
        )
    if parser and not found.reasoning:
        raise CheckFailed(f"no reasoning field in {found.chunks} chunks, with --reasoning-parser {parser}")
    if "<think>" in found.content or "</think>" in found.content:
        raise CheckFailed(f"the content contains reasoning: {found.content[:200]!r}")
    if not found.content:
        thought = f"{len(found.reasoning)} characters of reasoning"
        raise CheckFailed(f"the stream has no content (finish_reason {found.finish}, {thought})")
    text = _right(found.content, expect)
    fields = f", reasoning in {' and '.join(sorted(found.fields))}" if found.fields else ""
    return f"{found.chunks} chunks{fields}: {text}"


@check_kind("gpu", "serve-tools", Needs("server", flag="tool-call-parser"))
def tools(serving: Serving, *, max_tokens: int = 4096) -> str:
    """The model calls a tool, with JSON arguments, for a question that only the tool can answer."""
    question = "What is the weather in Paris right now? Use the tool."
    choice = serving.client.chat(question, max_tokens=max_tokens, tools=[_TOOL], tool_choice="auto")
    calls = choice["message"].get("tool_calls") or []
    if not calls:
        raise CheckFailed(f"no tool call; the content is {str(choice['message'].get('content'))[:200]!r}")
    try:
        name, text = calls[0]["function"]["name"], calls[0]["function"]["arguments"]
    except (LookupError, TypeError) as error:
        raise CheckFailed(f"a tool call without function and arguments: {str(calls[0])[:200]}") from error
    try:
        given = json.loads(text)
    except (ValueError, TypeError) as error:
        raise CheckFailed(f"the arguments of {name} are not JSON: {str(text)[:200]!r}") from error
    if name != "get_weather" or not isinstance(given, dict) or "paris" not in str(given.get("city")).lower():
        raise CheckFailed(f"it calls {name} with {text}; get_weather for Paris expected")
    return f"{name}({text})"


@check_kind("gpu", "serve-decode", _SERVER)
def decode(serving: Serving, *, at_least: float | None = None) -> str:
    """The decode rate of one request, measured as in `builder bench`. at_least: tokens/s; default: `expected_rate`."""
    server = Server(serving.client.url, model=serving.client.model, key=serving.client.key)
    server.session.trust_env = False
    try:
        found = measure(server, Scenario("gpu tier", 512, 128), 3)
    except NetworkError as error:
        raise CheckFailed(f"{error.what}" + (f": {error.cause}" if error.cause else "")) from error
    if found.decode is None:
        raise CheckFailed("no rate: all tokens came at once")
    text = f"{found.decode:.1f} tokens/s, first token after {found.ttft:.2f} s"
    wanted = at_least or expected_rate(serving.recipe)
    if found.decode < wanted:
        raise CheckFailed(f"{text}; at least {wanted:g} tokens/s expected")
    return text


@check_kind("gpu", "serve-speculation", Needs("server", flag="speculative-config"))
def speculation(serving: Serving, *, at_least: float = 0.1) -> str:
    """The share of accepted draft tokens while the model copies a text, from /metrics, is `at_least`."""
    before = counters(serving.client.get("/metrics"))
    if _DRAFTED not in before:
        raise CheckFailed("/metrics has no counters of speculation: the server does not speculate")
    text = _COPIED * 4
    serving.client.chat(f"Repeat this text exactly, three times, and say nothing else:\n\n{text}", max_tokens=512)
    after = counters(serving.client.get("/metrics"))
    drafted, accepted = (after.get(name, 0) - before.get(name, 0) for name in (_DRAFTED, _ACCEPTED))
    if drafted <= 0:
        raise CheckFailed("no token was drafted")
    found = f"{accepted:.0f} of {drafted:.0f} drafted tokens accepted, {accepted / drafted:.0%}"
    if accepted / drafted < at_least:
        raise CheckFailed(f"{found}; at least {at_least:.0%} expected")
    return found


@check_kind("gpu", "serve-log", _SERVER)
def log(serving: Serving, *, allow: Sequence[str] = ()) -> str:
    """The log has no known bad line and no undeclared warning. allow: patterns of more harmless lines."""
    text = serving.running.log()
    if not text.strip():
        raise CheckFailed("the log is empty, so it cannot be checked")
    if found := scan_server_log(text, allow):
        raise CheckFailed(f"{len(found)} lines: {describe(found)}")
    return f"{len(text.splitlines())} lines, none bad"


@check_kind("gpu", "serve-stop", _SERVER)
def stop(serving: Serving, *, within: int = 120) -> str:
    """After `docker stop`, the server exits within `within` seconds, and no process stays on the GPU."""
    begin = time.monotonic()
    serving.running.stop(within)
    seconds = time.monotonic() - begin
    state = serving.running.state()
    if state.running:
        raise CheckFailed(f"it still runs {seconds:.0f} s after docker stop")
    # 143: SIGTERM without a handler.
    if state.code not in (0, 143):
        killed = f", killed after {within} s" if state.code == 137 else ""
        raise CheckFailed(f"it ended with {state.code}{killed}")
    if left := gpu_processes(serving.host) - serving.before:
        raise CheckFailed(f"processes stay on the GPU: {', '.join(sorted(left))}")
    return f"ended with {state.code} after {seconds:.0f} s"


def _right(content: str, expect: str) -> str:
    if "!!!!!" in content:
        raise CheckFailed(f"the answer is {content[:100]!r}: the kernels compute garbage; use --moe-backend marlin")
    if not re.search(rf"(?<![\d.,]){re.escape(expect)}(?![\d]|[.,]\d)", content):
        raise CheckFailed(f"the answer is {content.strip()[-200:]!r}, expected {expect}")
    return f"{expect} in {len(content)} characters"


def expected_rate(recipe: Recipe) -> float:
    """The required decode rate in tokens/s: half of the recipe's own figure; 20 without one."""
    figures = re.findall(r"\d+(?:\.\d+)?", recipe.speed.tokens_per_second) if recipe.speed else []
    return float(figures[0]) / 2 if figures else 20.0
