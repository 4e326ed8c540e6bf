"""What real versions of vLLM said (tests/golden/vllm, written by `vllm_recorder`), whole or with faults."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.support.project import ROOT
from tests.support.tiny_model import COPIED

FOLDER = ROOT / "tests" / "golden" / "vllm"
VERSIONS = tuple(sorted(file.stem for file in FOLDER.glob("*.json")))
NEWEST = "0.32.0"
LENGTH = 16384
ON_A_CPU = (
    *("Triton is not installed", "Model Runner V2 requires Triton", "in LD_PRELOAD", "NUMA binding", "Reset SSM cache"),
    "triton_utils/dispatcher.py",
)
"""Parts of warnings that vLLM's build for CPUs prints and an image for a Spark does not."""
PROVOKED = "Error with model error="
"""Printed for the request for another model, which no check sends."""
THOUGHTS = ("reasoning", "reasoning_content")


@dataclass(frozen=True)
class Said:
    """A recorded answer: its status and type, and its text or its events."""

    status: int
    type: str
    text: str = ""
    events: tuple[Any, ...] = ()


@cache
def recorded(version: str) -> dict[str, Any]:
    """The file of a version."""
    found: dict[str, Any] = json.loads((FOLDER / f"{version}.json").read_text("utf-8"))
    return found


def said(version: str, name: str) -> Said:
    """A recorded answer."""
    item = recorded(version)["answers"][name]
    text = json.dumps(item["json"]) if "json" in item else item.get("text", "")
    return Said(item["status"], item["type"], text, tuple(item.get("events", ())))


def which(body: dict[str, Any]) -> str:
    """The recorded answer that fits a request."""
    stream, text = bool(body.get("stream")), str(body["messages"][0]["content"])
    kinds = {
        "unknown-model-stream" if stream else "unknown-model": body["model"] != "small",
        "too-long": len(text) > 6 * LENGTH,
        "too-many-tokens": body["max_tokens"] > LENGTH,
        "tools-stream" if stream else "tools": "tools" in body,
        "bench": stream and body.get("ignore_eos"),
        "stream": stream,
        "copy": text.startswith("Repeat") and COPIED in text,
        "thought-only": body["max_tokens"] <= 3,
    }
    return next((name for name, fits in kinds.items() if fits), "answer")


def delta(event: Any) -> dict[str, Any]:
    """What an event adds to the answer."""
    choices = event["choices"] if isinstance(event, dict) else []
    return choices[0]["delta"] if choices else {}


def with_text(event: Any, **text: str) -> Any:
    """An event that adds this instead."""
    return {**event, "choices": [{**event["choices"][0], "delta": text}]}


def faulty_answer(text: str, bad: Iterable[str]) -> str:
    """A chat completion with faults."""
    found = json.loads(text)
    message = found["choices"][0]["message"]
    if "wrong" in bad and message["content"]:
        message["content"] = message["content"].replace("204", "1204")
    if "garbage" in bad:
        message["content"] = "!!!!!!!!!!!!"
    if calls := message.get("tool_calls"):
        function = calls[0]["function"]
        if "no tool call" in bad:
            message.update(tool_calls=[], content="It is sunny.")
        if "broken arguments" in bad:
            function["arguments"] = function["arguments"][:-3]
        if "wrong tool" in bad:
            function["name"] = "get_time"
    return json.dumps(found)


def faulty_events(events: Iterable[Any], bad: Iterable[str]) -> list[Any]:
    """A stream with faults; those that break it are the server's."""
    found = [
        event for event in events if not ("no reasoning" in bad and any(name in delta(event) for name in THOUGHTS))
    ]
    if "old reasoning" in bad:
        found = [
            with_text(event, reasoning_content=delta(event)["reasoning"]) if "reasoning" in delta(event) else event
            for event in found
        ]
    content = [number for number, event in enumerate(found) if delta(event).get("content")]
    if "leaks" in bad:
        found.insert(content[0], with_text(found[content[0]], content="<think>hm</think>"))
    if "wrong" in bad:
        found = json.loads(json.dumps(found).replace("204", "1204"))
    if "at once" in bad:
        whole = "".join(delta(found[number])["content"] for number in content)
        start, last = (0, with_text(found[content[0]], content=whole)), content[-1]
        found = [found[start[0]], start[1], *found[last + 1 :]]
        found = [usage(event, 40) for event in found]
    if "joined" in bad:
        found = joined(found, 8)
    if "no usage" in bad:
        found = [event for event in found if event == "[DONE]" or not event.get("usage")]
    if "no end" in bad:
        found.remove("[DONE]")
    return found


def usage(event: Any, tokens: int) -> Any:
    """An event that reports this number of tokens, if it reports one."""
    if isinstance(event, dict) and event.get("usage"):
        return {**event, "usage": {**event["usage"], "completion_tokens": tokens}}
    return event


def spoken(events: Sequence[Any]) -> tuple[int, int]:
    """Where the events with generated text begin and end."""
    numbers = [n for n, event in enumerate(events) if any(delta(event).values()) and "role" not in delta(event)]
    return numbers[0], numbers[-1] + 1


def longer(events: Sequence[Any], tokens: int) -> list[Any]:
    """The stream of `bench` with this many tokens: its events with text, as often as needed."""
    begin, end = spoken(events)
    texts = [events[begin + number % (end - begin)] for number in range(tokens)]
    return [usage(event, tokens) for event in [*events[:begin], *texts, *events[end:]]]


def joined(events: Sequence[Any], tokens: int) -> list[Any]:
    """A stream with so many tokens in each event, as speculation and slow readers cause it."""
    begin, end = spoken(events)
    groups = [[delta(event) for event in events[at : min(at + tokens, end)]] for at in range(begin, end, tokens)]
    fields = ("content", "reasoning")
    texts = [{field: "".join(each.get(field) or "" for each in group) for field in fields} for group in groups]
    return [*events[:begin], *(with_text(events[begin], **text) for text in texts), *events[end:]]


def counters(version: str, copied: bool, bad: Iterable[str]) -> str:
    """The metrics before or after a text was copied."""
    text = said(version, "metrics-after" if copied and "nothing drafted" not in bad else "metrics").text
    if "no speculation" in bad:
        text = "".join(line for line in text.splitlines(True) if "spec_decode" not in line)
    for fault, accepted in (("low acceptance", 6.0), ("half accepted", 190.0)):
        if fault in bad and copied:
            text = re.sub(r"(?m)^(vllm:spec_decode_num_accepted_tokens_total\S*) .*", rf"\1 {accepted}", text)
    return text


def server_log(version: str) -> list[str]:
    """The log until the server is asked to end, as an image for a Spark prints it while the checks run."""
    lines: list[str] = recorded(version)["log"]
    end = next(number for number, line in enumerate(lines) if "[shutdown]" in line or "Shutting down" in line)
    return [line for line in lines[:end] if not any(part in line for part in (*ON_A_CPU, PROVOKED))]
