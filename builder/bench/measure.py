"""Measures prefill and decode rates of an OpenAI-compatible vLLM server.

Every prompt has a nonce, so that no cached prefix is measured; `ignore_eos` makes the answer as long as requested;
the server counts the tokens; reasoning counts as decoding. From spark-vllm-guide section 10 and vllm-on-dgx-spark
table 2.
"""

from __future__ import annotations

import statistics
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from builder.bench.server import Sample, Server
from builder.errors import NetworkError

_SENTENCE = "The DGX Spark is a compact GB10 system with 128 GB of unified memory. "
_WORDS_PER_SENTENCE = 13
_AT_ONCE = 16
"""Tokens of one chunk: more than any drafter proposes for one step."""


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
    if (last.reasoning_chunks + last.answer_chunks) < last.output_tokens / _AT_ONCE:
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
