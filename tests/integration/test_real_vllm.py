"""The gpu tier's checks of a server, `builder bench` and the log scanner, against a real vLLM on this machine's CPU.

It serves a tiny model whose answers are known (`tests.support.tiny_model`), through vLLM's own parsers, scheduler and
speculation. At night only: an environment and a start take minutes where other tests run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from builder.bench.measure import Scenario, measure
from builder.bench.server import Server
from builder.errors import NetworkError
from builder.model.check import Check
from tests.support.cli import run_here
from tests.support.docker_daemon import FakeContainer, docker_daemon
from tests.support.errors import fails
from tests.support.gpu_machine import CHECKS, Machine, by_id
from tests.support.nightly import nightly
from tests.support.real_vllm import KEY, VERSIONS, serving
from tests.support.recorded_vllm import ON_A_CPU, delta, recorded
from tests.support.vllm_recorder import ask, recordable

pytestmark = [nightly, pytest.mark.slow, pytest.mark.network, pytest.mark.xdist_group("real-vllm")]


class RealMachine(Machine):
    """A recorded machine whose server is a process of a real vLLM; it gets the words of the container."""

    version = VERSIONS[-1]

    def serve(self, container: FakeContainer) -> int:
        ((published,),) = container.host["PortBindings"].values()
        port = int(published["HostPort"])
        with serving(self.version, container.words, port, self.home, container.env, container.print) as server:
            while server.process.poll() is None and not container.asked.wait(0.2):
                pass
            server.process.terminate()
            return server.process.wait(60)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_real_server_passes_every_check(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with docker_daemon(tmp_path / "docker.sock") as docker, docker_daemon(tmp_path / "peer.sock") as peer:
        machine = RealMachine(tmp_path, docker, peer)
        machine.version = version
        monkeypatch.setenv("DOCKER_HOST", docker.url)
        checks = [
            *CHECKS,
            Check(id="serve-decode", tier="gpu", kind="serve-decode", args={"at-least": 1}),
            Check(id="serve-log", tier="gpu", kind="serve-log", args={"allow": list(ON_A_CPU)}),
        ]
        found = by_id(machine.run(checks=checks, start=1200.0, interval=0.5))
        assert not machine.left()
    assert {id: message for id, (status, message) in found.items() if status != "pass"} == {}
    assert found["serve-models"][1] == "small, length 16384"
    assert found["serve-tools"][1] == 'get_weather({"city": "Paris"})'
    assert "reasoning in reasoning: 204" in found["serve-stream"][1]


@pytest.fixture(scope="module", params=VERSIONS)
def real(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """The address and the version of a real server that wants a key."""
    with ExitStack() as stack:
        url, _ = stack.enter_context(recordable(request.param))
        yield url, request.param


def test_it_says_what_was_recorded(real: tuple[str, str]) -> None:
    """The stand-in of the other tests replays the recording: python -m tests.support.vllm_recorder writes it again."""
    url, version = real
    found, wanted = (plain(each) for each in (ask(url), recorded(version)["answers"]))
    assert found == wanted


def plain(answers: dict[str, Any]) -> dict[str, Any]:
    """Answers, with the names of metrics instead of their numbers, and streams as one text for each field.

    vLLM joins the tokens that wait while a client reads slowly.
    """
    found = dict(answers)
    for name, answer in answers.items():
        if name.startswith("metrics"):
            found[name] = {line.split("{")[0] for line in answer["text"].splitlines()}
        elif "events" in answer:
            texts: dict[str, str] = {}
            for field, value in (item for event in answer["events"] for item in delta(event).items()):
                texts[field] = texts.get(field, "") + (
                    value if isinstance(value, str) else json.dumps(value, sort_keys=True)
                )
            ends = [event for event in answer["events"] if not any(delta(event).values())]
            found[name] = {**answer, "events": ends, "texts": texts}
    return found


def test_bench_measures_it(real: tuple[str, str], tmp_path: Path) -> None:
    words = ("bench", "--url", real[0], "--prompt-tokens", "500", "--output-tokens", "64", "--runs", "2", "-c", "2")
    done = run_here(words, environ={**os.environ, "VLLM_API_KEY": KEY}, folder=tmp_path)
    assert done.code == 0, done.err
    assert "2 requests at once" in done.out
    result = measure(Server(real[0], key=KEY), Scenario("x", 500, 64), 1)
    assert result.output_tokens == 64
    assert 300 < result.prompt_tokens < 1500
    assert "reasoning tokens are counted" in result.warnings


def test_bench_names_the_next_step(real: tuple[str, str]) -> None:
    asked = {
        "--model": (Server(real[0], model="other", key=KEY), "x"),
        "VLLM_API_KEY": (Server(real[0], model="small"), "x"),
        "--prompt-tokens": (Server(real[0], key=KEY), "x " * 20000),
    }
    for step, (server, question) in asked.items():
        with fails(NetworkError, "bench-request-refused") as caught:
            server.ask(question, 8)
        assert step in caught.value.next
    assert "16384" in caught.value.cause
