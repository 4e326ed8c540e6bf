"""`builder bench`: the speed of a running server."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from builder.bench.measure import SCENARIOS, Scenario, measure
from builder.bench.server import Server
from builder.cli.options import JsonOption
from builder.cli.output import print_json, print_line, say, terminal_width

_NUMBERS = 51
"""Columns of the numbers of a scenario."""


def bench(
    url: Annotated[str, typer.Option("--url", help="URL of the server.")] = "http://localhost:8000",
    model: Annotated[
        str | None, typer.Option("--model", help="Served name of the model; default: the server's first.")
    ] = None,
    prompt_tokens: Annotated[
        int, typer.Option("--prompt-tokens", min=1, max=1_000_000, help="Approximate length of the prompt.")
    ] = 2000,
    output_tokens: Annotated[int, typer.Option("--output-tokens", min=2, max=100_000, help="Tokens to decode.")] = 256,
    runs: Annotated[int, typer.Option("--runs", min=1, max=1000, help="Requests; their median is the result.")] = 3,
    concurrency: Annotated[
        int,
        typer.Option("--concurrency", "-c", min=1, max=256, help="Requests at once; measure with as many as you use."),
    ] = 1,
    scenarios: Annotated[
        bool, typer.Option("--scenarios", help="Measure the five scenarios of the reference instead of one.")
    ] = False,
    think: Annotated[bool | None, typer.Option("--think/--no-think", help="Turn thinking on or off.")] = None,
    json_: JsonOption = False,
) -> None:
    """Measure a running server: time to first token, prefill rate, decode rate. VLLM_API_KEY is sent if it is set."""
    server = Server(url, model=model, key=os.environ.get("VLLM_API_KEY"), think=think)
    chosen = SCENARIOS if scenarios else (Scenario("single", prompt_tokens, output_tokens),)
    results = []
    for number, scenario in enumerate(chosen):
        say(
            f"{scenario.name}: {runs} x {concurrency} x about {scenario.prompt_tokens} tokens in, "
            f"{scenario.output_tokens} out",
            hang=2,
        )
        results.append(measure(server, scenario, runs, warm_up=number == 0, concurrency=concurrency))
    if json_:
        print_json({"url": server.url, "model": server.model, "results": [item.to_json() for item in results]})
        return
    names = ["scenario", *(item.scenario for item in results)]
    width = max(map(len, names))
    if sys.stdout.isatty() and width + _NUMBERS > terminal_width():
        # The numbers of a longer name are below it.
        width = len(names[0])
        names = [name if len(name) <= width else f"{name}\n{'':{width}}" for name in names]
    print(
        f"{names[0]:{width}} {'prompt':>7} {'output':>6} {'TTFT s':>7} {'total s':>8} {'prefill/s':>9} {'decode/s':>8}"
    )
    for name, item in zip(names[1:], results, strict=True):
        rates = [f"{rate:.1f}" if rate is not None else "-" for rate in (item.prefill, item.decode)]
        print(
            f"{name:{width}} {item.prompt_tokens:7} {item.output_tokens:6} {item.ttft:7.3f} {item.total:8.3f} "
            f"{rates[0]:>9} {rates[1]:>8}"
        )
        if item.together is not None:
            together = f"{item.concurrency} requests at once: {item.together:.1f} tokens/s together"
            print_line(f"{together}; the rates above are one's", hang=2)
        for warning in item.warnings:
            say(f"  {item.scenario}: {warning}", hang=4)
