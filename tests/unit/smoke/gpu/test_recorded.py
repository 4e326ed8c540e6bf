"""What real versions of vLLM said (tests/golden/vllm), judged by the client, the checks, `bench` and the scanner."""

from __future__ import annotations

import re

import pytest

from builder.bench.measure import Scenario, measure
from builder.bench.server import Server
from builder.errors import NetworkError
from builder.smoke.gpu.client import counters
from builder.smoke.logscan import scan_server_log
from tests.support.errors import fails
from tests.support.openai_server import serving
from tests.support.project import ROOT
from tests.support.recorded_vllm import VERSIONS, delta, recorded, said, server_log

NAMED = re.compile(r"`(vllm:[a-z_]+)`")


def test_two_versions_are_recorded_of_which_one_is_the_newest_that_serves_here() -> None:
    assert VERSIONS == ("0.28.0", "0.32.0")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_warning_of_a_healthy_server_is_known_unless_it_is_about_the_cpu(version: str) -> None:
    log = "\n".join(server_log(version))
    assert "WARNING" in log
    assert [each.line for each in scan_server_log(log)] == []
    assert scan_server_log("\n".join(recorded(version)["log"])) != [], "a build for CPUs warns"


def test_a_warning_of_a_healthy_server_on_a_gpu_is_known() -> None:
    """An H100, CUDA 13.0; the wheel of vLLM from the package index, the gpu tier's small model, all requests."""
    log = (ROOT / "tests/golden/vllm/0.23.0-cuda.log").read_text("utf-8")
    assert "Using FLASH_ATTN attention backend" in log
    assert [each.line for each in scan_server_log(log)] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_every_metric_that_the_documents_name_exists(version: str) -> None:
    names = set(counters(said(version, "metrics-after").text))
    pages = (ROOT / "docs").rglob("*.md")
    named = {name for page in pages for name in NAMED.findall(page.read_text("utf-8"))}
    assert len(named) >= 3
    assert named <= names


@pytest.mark.parametrize("version", VERSIONS)
def test_tool_calls_are_streamed_apart_from_text(version: str) -> None:
    deltas = [delta(event) for event in said(version, "tools-stream").events]
    calls = [call["function"] for each in deltas for call in each.get("tool_calls") or ()]
    assert calls[0]["name"] == "get_weather"
    assert "".join(call.get("arguments") or "" for call in calls) == '{"city": "Paris"}'
    assert not any(each.get("content") for each in deltas)


@pytest.mark.parametrize("version", VERSIONS)
def test_bench_measures_and_names_the_next_step(version: str) -> None:
    with serving(version=version) as (url, _):
        found = measure(Server(url), Scenario("x", 500, 40), 1)
        assert (found.output_tokens, found.warnings[-1]) == (40, "reasoning tokens are counted")
        refused = {"--model": (Server(url, model="other"), 8), "--output-tokens": (Server(url), 20000)}
        for step, (server, tokens) in refused.items():
            with fails(NetworkError, "bench-request-refused") as caught:
                server.ask("x", tokens)
            assert step in caught.value.next
        with fails(NetworkError, "bench-request-refused") as caught:
            Server(url).ask("x " * 60000, 8)
        assert "--prompt-tokens" in caught.value.next
        assert "16384" in caught.value.cause


@pytest.mark.parametrize("version", VERSIONS)
def test_several_tokens_in_an_event_are_measured_without_a_warning(version: str) -> None:
    """Speculation joins tokens, and the end of a thought with the beginning of the answer."""
    with serving("joined", version=version) as (url, _):
        found = measure(Server(url), Scenario("x", 500, 80), 1)
    assert found.warnings == ("reasoning tokens are counted",)
