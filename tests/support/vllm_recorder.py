"""Records what a real vLLM says, for `openai_server` to replay: python -m tests.support.vllm_recorder [VERSION…]."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import requests

from builder.smoke.gpu import server_checks
from tests.support import tiny_model
from tests.support.loopback import free_port
from tests.support.project import ROOT
from tests.support.real_vllm import KEY, REPOSITORY, VERSIONS, RealServer, plain_log, serving, wait_until_healthy

FOLDER = ROOT / "tests" / "golden" / "vllm"
WORDS = [
    *(REPOSITORY, "--served-model-name", "small", "--host", "0.0.0.0", "--port", "8000"),
    *("--max-model-len", "16384", "--max-num-seqs", "4", "--reasoning-parser", "qwen3"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--speculative-config"),
    '{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":4}',
]
"""The words of the gpu tier's small model."""
QUESTION = "What is 12*17? Answer with the number."
TOOLS = {"tools": [server_checks._TOOL], "tool_choice": "auto"}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
CHATS: dict[str, dict[str, Any]] = {
    "answer": {"max_tokens": 4096},
    "thought-only": {"max_tokens": 3},
    "no-think": {"max_tokens": 64, "chat_template_kwargs": {"enable_thinking": False}},
    "stream": {"max_tokens": 4096, **STREAM, "chat_template_kwargs": {"enable_thinking": True}},
    "bench": {"max_tokens": 12, **STREAM, "ignore_eos": True},
    "tools": {"max_tokens": 4096, **TOOLS},
    "tools-stream": {"max_tokens": 4096, **TOOLS, **STREAM},
    "unknown-model": {"model": "other", "max_tokens": 3},
    "unknown-model-stream": {"model": "other", "max_tokens": 3, **STREAM},
    "too-long": {"text": "x " * 20000, "max_tokens": 3},
    "too-many-tokens": {"max_tokens": 20000},
    "not-a-number": {"max_tokens": "few"},
    "copy": {"text": f"Repeat this text exactly:\n\n{tiny_model.COPIED * 4}", "max_tokens": 512},
}
"""Requests by name: what they ask beside a question."""


def ask(url: str) -> dict[str, Any]:
    """The answers of a server that was started with WORDS and KEY, by name."""
    session = requests.Session()
    found = {"no-key": said(session.get(f"{url}/v1/models", timeout=30))}
    session.headers["Authorization"] = f"Bearer {KEY}"
    for name in ("health", "v1/models", "metrics", "absent"):
        found[name] = said(session.get(f"{url}/{name}", timeout=30))
    for name, more in CHATS.items():
        text = more.get("text", QUESTION)
        body = {"model": "small", "messages": [{"role": "user", "content": text}], "temperature": 0}
        body |= {key: value for key, value in more.items() if key != "text"}
        found[name] = said(session.post(f"{url}/v1/chat/completions", json=body, timeout=300))
    found["metrics-after"] = said(session.get(f"{url}/metrics", timeout=30))
    return found


@contextmanager
def recordable(version: str) -> Iterator[tuple[str, RealServer]]:
    """The address of such a server."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with TemporaryDirectory() as folder:
        with serving(version, WORDS, port, Path(folder), {"VLLM_API_KEY": KEY}) as server:
            wait_until_healthy(server, url)
            yield url, server
        server.lines[:] = plain_log(server.log().replace(folder, "").replace(str(port), "8000"))


def record(version: str) -> dict[str, Any]:
    """What a version says."""
    with recordable(version) as (url, server):
        answers = ask(url)
    return {"version": version, "log": server.lines, "answers": answers}


def said(answer: requests.Response) -> dict[str, Any]:
    """An answer without times and random names."""
    kind, text = answer.headers.get("Content-Type", ""), answer.text
    text = re.sub(r'"(chatcmpl-tool|chatcmpl|call|modelperm|vllm-[\d.]+)-[0-9a-f]+"', r'"\1-1"', text)
    text = re.sub(r'"created":\s?\d+', '"created":1', text)
    content: dict[str, Any]
    if kind.startswith("text/event-stream"):
        events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
        content = {"events": [event if event == "[DONE]" else json.loads(event) for event in events]}
    elif kind.startswith("application/json"):
        content = {"json": json.loads(text)}
    else:
        content = {"text": metrics(text) if "# TYPE" in text else text}
    return {"status": answer.status_code, "type": kind, **content}


def metrics(text: str) -> str:
    """vLLM's own metrics: the first line of each, without the buckets of histograms."""
    names: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("vllm:") and not re.search(r"_(bucket|created)\{", line):
            names.setdefault(line.split("{")[0], line)
    return "\n".join(names.values()) + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for version in sys.argv[1:] or VERSIONS:
        text = json.dumps(record(version), indent=1, ensure_ascii=False, sort_keys=True)
        # An event, a line of a log: one line each.
        text = re.sub(r"\n {3,}", " ", text)
        (FOLDER / f"{version}.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
