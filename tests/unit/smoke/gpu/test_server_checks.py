"""The checks of a server, against a healthy server and servers with one fault each."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, field

import pytest

from builder.doctor.host import Outcome
from builder.engine.containers import ContainerState
from builder.model.recipe import Recipe
from builder.project import Project
from builder.smoke.check import CheckFailed, CheckNotRun
from builder.smoke.gpu import server_checks
from builder.smoke.gpu.client import Client
from builder.smoke.gpu.server import Serving, gpu_processes, wait
from builder.smoke.gpu.small import small
from tests.support.openai_server import START, serving
from tests.support.recorded_vllm import VERSIONS

RECIPE = small(Project().recipe("nemotron-omni"))
QUESTION = {"question": "What is 12*17?", "expect": "204", "max_tokens": 4096}


@dataclass
class Host:
    """A machine on whose GPU these processes run."""

    processes: str | None = ""

    def run(self, *words: str) -> Outcome | None:
        return None if self.processes is None else Outcome(0, self.processes)

    def read(self, path: str) -> str | None:
        return None

    def glob(self, pattern: str) -> tuple[str, ...]:
        return ()

    def free_disk(self, path: str) -> int | None:
        return None

    def env(self, name: str) -> str | None:
        return None


@dataclass
class Container:
    """The state of a container as docker reports it."""

    states: list[ContainerState] = field(default_factory=lambda: [ContainerState(True, 0, False)])
    text: str = START
    stopped: list[int] = field(default_factory=list)

    def state(self) -> ContainerState:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def log(self) -> str:
        return self.text

    def stop(self, patience: int) -> None:
        self.stopped.append(patience)


def server(url: str, *, container: Container | None = None, recipe: Recipe = RECIPE, patience: float = 5.0) -> Serving:
    client = Client(url, "small", key="secret", patience=patience)
    return Serving(container or Container(), client, recipe, Host(), interval=0.02)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_healthy_server_passes_every_check(version: str) -> None:
    with serving(version=version) as (url, seen):
        it = server(url)
        assert wait(it, 5).startswith("healthy")
        assert re.match(r"first request \d\.\d s, second \d", server_checks.warm_up(it, within=5))
        assert server_checks.models(it) == "small, length 16384"
        assert server_checks.answer(it, **QUESTION) == "204 in 20 characters"  # type: ignore[arg-type]
        assert server_checks.stream(it, **QUESTION) == "7 chunks, reasoning in reasoning: 204 in 20 characters"  # type: ignore[arg-type]
        assert server_checks.tools(it, max_tokens=4096) == 'get_weather({"city": "Paris"})'
        assert "tokens/s" in server_checks.decode(it, at_least=20)
        assert server_checks.speculation(it, at_least=0.1) == "381 of 381 drafted tokens accepted, 100%"
    asked = seen.seen
    assert {each["key"] for each in asked} == {"Bearer secret"}
    assert {each["model"] for each in asked} == {"small"}
    assert next(each for each in asked if "tools" in each)["tool_choice"] == "auto"
    streamed = next(each for each in asked if each.get("stream"))
    assert streamed["chat_template_kwargs"] == {"enable_thinking": True}


ANSWERS = [
    ("wrong", "expected 204"),
    ("garbage", "--moe-backend marlin"),
    ("empty", "max_tokens went into reasoning"),
    ("500", "answers 500: .*EngineCore encountered an issue"),
    ("not json", "does not answer with a completion"),
]


@pytest.mark.parametrize(("fault", "expected"), ANSWERS)
def test_a_bad_answer_fails(fault: str, expected: str) -> None:
    with serving(fault) as (url, _), pytest.raises(CheckFailed, match=expected):
        server_checks.answer(server(url), **QUESTION)  # type: ignore[arg-type]


STREAMS = [
    ("wrong", "expected 204"),
    ("no reasoning", "no reasoning field in 4 chunks, with --reasoning-parser qwen3"),
    ("at once", "the answer is not streamed: 40 tokens came in 1 chunk"),
    ("leaks", "the content contains reasoning"),
    ("broken event", "an event that is not JSON"),
    ("cut", "the stream broke after 1 chunks"),
    ("no end", "without .DONE."),
    ("no usage", "no usage"),
    ("500", "answers 500"),
]


@pytest.mark.parametrize(("fault", "expected"), STREAMS)
def test_a_bad_stream_fails(fault: str, expected: str) -> None:
    with serving(fault) as (url, _), pytest.raises(CheckFailed, match=expected):
        server_checks.stream(server(url), **QUESTION)  # type: ignore[arg-type]


def test_reasoning_under_its_older_name_passes_and_is_named() -> None:
    with serving("old reasoning") as (url, _):
        assert "reasoning in reasoning_content" in server_checks.stream(server(url), **QUESTION)  # type: ignore[arg-type]


def test_without_a_parser_no_reasoning_is_requested() -> None:
    flags = {name: value for name, value in RECIPE.serve.flags.items() if name != "reasoning-parser"}
    plain = RECIPE.model_copy(update={"serve": RECIPE.serve.model_copy(update={"flags": flags})})
    with serving("no reasoning") as (url, seen):
        assert server_checks.stream(server(url, recipe=plain), **QUESTION) == "4 chunks: 204 in 20 characters"  # type: ignore[arg-type]
    assert "chat_template_kwargs" not in seen.seen[0]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("no tool call", "no tool call; the content is 'It is sunny.'"),
        ("broken arguments", "arguments of get_weather are not JSON"),
        ("wrong tool", "it calls get_time"),
        ("500", "answers 500"),
    ],
)
def test_a_bad_tool_call_fails(fault: str, expected: str) -> None:
    with serving(fault) as (url, _), pytest.raises(CheckFailed, match=expected):
        server_checks.tools(server(url), max_tokens=100)


@pytest.mark.parametrize(("fault", "expected"), [("other model", "has other, not small"), ("short", "length of 4096")])
def test_another_model_than_in_the_command_fails(fault: str, expected: str) -> None:
    with serving(fault) as (url, _), pytest.raises(CheckFailed, match=expected):
        server_checks.models(server(url))


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("no speculation", "does not speculate"),
        ("nothing drafted", "no token was drafted"),
        ("low acceptance", "6 of 381 .* 2%; at least 10% expected"),
    ],
)
def test_speculation_that_does_nothing_fails(fault: str, expected: str) -> None:
    with serving(fault) as (url, _), pytest.raises(CheckFailed, match=expected):
        server_checks.speculation(server(url), at_least=0.1)


def test_slow_decoding_fails() -> None:
    with serving() as (url, _), pytest.raises(CheckFailed, match="at least 100000 tokens/s expected"):
        server_checks.decode(server(url), at_least=100000)


def test_a_warm_up_that_fails_or_lasts_fails() -> None:
    with serving("500") as (url, _), pytest.raises(CheckFailed, match="500"):
        server_checks.warm_up(server(url), within=5)
    with serving() as (url, _), pytest.raises(CheckFailed, match="at most 0 s expected"):
        server_checks.warm_up(server(url), within=0)


def test_a_server_that_hangs_fails_in_time() -> None:
    with serving("hang") as (url, _), pytest.raises(CheckFailed, match=r"nothing came for 0\.2 s"):
        server_checks.answer(server(url, patience=0.2), **QUESTION)  # type: ignore[arg-type]
    with serving("hang") as (url, _), pytest.raises(CheckFailed, match=r"nothing came for 0\.2 s"):
        server_checks.stream(server(url, patience=0.2), **QUESTION)  # type: ignore[arg-type]


def test_a_stream_that_drips_fails_in_time() -> None:
    with serving("slow") as (url, _), pytest.raises(CheckFailed, match="did not end within"):
        server_checks.stream(server(url, patience=0.5), **QUESTION)  # type: ignore[arg-type]


def test_a_refused_connection_fails() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(CheckFailed, match="the connection broke"):
            server_checks.answer(server(url), **QUESTION)  # type: ignore[arg-type]


class TestStart:
    def test_the_reason_of_a_server_that_exits_is_reported(self) -> None:
        dead = Container(
            [ContainerState(True, 0, False), ContainerState(False, 1, False)], "x\nValueError: No available memory\nbye"
        )
        with serving("unhealthy") as (url, _), pytest.raises(CheckFailed, match=r"ended with 1 .*No available memory"):
            wait(server(url, container=dead), 5)

    def test_known_lines_of_the_log_come_first(self) -> None:
        log = f"{START}\nRuntimeError: no kernel image is available for execution on the device\nValueError: x"
        with serving("unhealthy") as (url, _), pytest.raises(CheckFailed, match="no code for sm_121"):
            wait(server(url, container=Container([ContainerState(False, 1, False)], log)), 5)

    def test_an_out_of_memory_kill_is_reported(self) -> None:
        dead = Container([ContainerState(False, 137, True)], "")
        with serving() as (url, _), pytest.raises(CheckFailed, match="ran out of memory"):
            wait(server(url, container=dead), 5)

    def test_a_server_that_never_gets_healthy_fails_in_time(self) -> None:
        with serving("unhealthy") as (url, _), pytest.raises(CheckFailed, match=r"not healthy within 0\.1 s .*503"):
            wait(server(url), 0.1)


class TestStop:
    @pytest.mark.parametrize("code", [0, 143])
    def test_a_normal_exit_passes(self, code: int) -> None:
        it = server("http://127.0.0.1:9", container=Container([ContainerState(False, code, False)]))
        assert server_checks.stop(it, within=60).startswith(f"ended with {code}")
        assert it.running.stopped == [60]  # type: ignore[attr-defined]

    @pytest.mark.parametrize(
        ("state", "expected"),
        [
            (ContainerState(True, 0, False), "still runs"),
            (ContainerState(False, 137, False), "137, killed after 60 s"),
            (ContainerState(False, 1, False), "ended with 1"),
        ],
    )
    def test_any_other_end_fails(self, state: ContainerState, expected: str) -> None:
        with pytest.raises(CheckFailed, match=expected):
            server_checks.stop(server("http://127.0.0.1:9", container=Container([state])), within=60)

    def test_processes_left_on_the_gpu_fail_and_other_processes_do_not_matter(self) -> None:
        it = server("http://127.0.0.1:9", container=Container([ContainerState(False, 0, False)]))
        it.host, it.before = Host("77\n78\n"), frozenset({"77"})
        with pytest.raises(CheckFailed, match="processes stay on the GPU: 78"):
            server_checks.stop(it, within=60)
        it.before = frozenset({"77", "78"})
        assert server_checks.stop(it, within=60)

    def test_without_an_answer_of_nvidia_smi_it_is_not_run(self) -> None:
        with pytest.raises(CheckNotRun, match="nvidia-smi"):
            gpu_processes(Host(None))


class TestLog:
    def log(self, *lines: str, allow: tuple[str, ...] = ()) -> str:
        return server_checks.log(server("http://127.0.0.1:9", container=Container(text="\n".join(lines))), allow=allow)

    def test_a_clean_log_passes(self) -> None:
        assert self.log(START, "INFO warnings: none") == "2 lines, none bad"

    def test_an_empty_log_fails(self) -> None:
        with pytest.raises(CheckFailed, match="empty"):
            self.log(" ")

    @pytest.mark.parametrize(
        ("line", "means"),
        [
            ("INFO [nvfp4.py:99] Using 'VLLM_CUTLASS' NvFp4 MoE backend out of potential backends: ['X'].", "garbage"),
            ("WARNING [envs.py:1] Unknown vLLM environment variable detected: VLLM_X", "does nothing"),
            ("ERROR: CUDA Forward compatibility mode is UNAVAILABLE.", "another driver"),
            ("ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (8).", "cudagraph"),
            ("ptxas fatal: Value 'sm_121a' is not defined for option 'gpu-name'", "too old"),
        ],
    )
    def test_known_bad_lines_fail_with_their_meaning(self, line: str, means: str) -> None:
        with pytest.raises(CheckFailed, match=means):
            self.log(START, line, allow=(".*",))

    def test_an_undeclared_warning_fails_once(self) -> None:
        odd = [f"WARNING 11-21 08:00:0{second} [x.py:1] Something is odd" for second in (1, 2, 3)]
        with pytest.raises(CheckFailed, match=r"^1 lines: .*Something is odd$"):
            self.log(START, *odd)
        assert self.log(START, *odd, allow=("Something is odd",)) == "4 lines, none bad"

    def test_declared_warnings_pass(self) -> None:
        good = "WARNING 11-21 [fp4.py:1] Your GPU does not have native support for FP4 computation but"
        chosen = "INFO Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['VLLM_CUTLASS', 'MARLIN']."
        assert self.log(START, good, chosen) == "3 lines, none bad"
