"""The whole gpu tier against a recorded machine, a `docker` that only pretends, and a simulated server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from builder.doctor.host import Outcome
from builder.errors import EngineError, InvalidError
from builder.model.check import Check
from builder.model.recipe import Recipe
from builder.project import Project
from builder.smoke import gpu_probe, kinds_gpu
from builder.smoke.gpu import run_gpu
from builder.smoke.gpu_docker import Docker, Done
from builder.smoke.gpu_site import Image, Options, require_spark
from builder.smoke.gpu_small import small
from builder.smoke.report import Report
from builder.smoke.runner import Unable
from builder.smoke.static import Failed
from tests.support.project import ROOT
from tests.unit.smoke.fake_docker import FakeDocker
from tests.unit.smoke.test_gpu_judge import DEVICE, MARLIN, PERF, REDUCED, TRITON, changed

PROJECT = Project()
QUERY = "nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv,noheader"
DRIVER = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"
APPS = "nvidia-smi --query-compute-apps=pid --format=csv,noheader"
ROUTE = '[{"dst":"192.168.100.11","dev":"enp1s0f0np0","prefsrc":"192.168.100.10","flags":[],"uid":0,"cache":[]}]'
DEVICES = "/sys/class/infiniband/rocep1s0f0/device/net/enp1s0f0np0\n"
ID, NAME = "sha256:" + "1" * 64, "nemotron-omni:111111111111"
OURS: dict[str, JsonValue] = {"under": "/opt/nccl/", "version": "2.29.7-1"}
CHECKS = [
    Check(id="nccl-all-reduce", tier="gpu", kind="nccl-all-reduce", args=OURS),
    Check(id="marlin-moe-nvfp4", tier="gpu", kind="marlin-moe", args={"format": "nvfp4"}),
    Check(id="static-thing", tier="static", kind="file", args={"path": "/x"}),
]
IDS = [
    *("nccl-all-reduce", "marlin-moe-nvfp4", "driver", "device", "triton-jit", "serve-health", "serve-warm-up"),
    *("serve-models", "serve-answer", "serve-stream", "serve-tools", "serve-decode", "serve-speculation"),
    *("serve-log", "serve-stop"),
]
TWO_NODES = Check(id="nccl-two-nodes", tier="gpu", kind="nccl-two-nodes", args={"transport": "roce"})


@dataclass
class Recorded:
    """A machine as recorded, a DGX Spark by default."""

    commands: dict[str, Outcome] = field(
        default_factory=lambda: {
            QUERY: Outcome(0, "NVIDIA GB10, 12.1, 580.142\n"),
            DRIVER: Outcome(0, "580.142\n"),
            APPS: Outcome(0, ""),
            "ip -json route get 192.168.100.11": Outcome(0, ROUTE),
            "sh -c ls -d /sys/class/infiniband/*/device/net/enp1s0f0np0": Outcome(0, DEVICES),
        }
    )
    files: dict[str, str] = field(default_factory=dict)

    def run(self, *words: str) -> Outcome | None:
        return self.commands.get(" ".join(words))

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def glob(self, pattern: str) -> tuple[str, ...]:
        return ()

    def free_disk(self, path: str) -> int | None:
        return None

    def env(self, name: str) -> str | None:
        return None


class Machine:
    """Programs on the path that stand for docker and ssh, and what they know."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "docker"
        self.bin = folder / "bin"
        (self.home / "peer").mkdir(parents=True)
        self.bin.mkdir()
        python = f"{sys.executable} -I -S"
        self.program("docker", f'exec {python} {ROOT / "tests/unit/smoke/fake_docker.py"} "$@"')
        # What stands before the address are ssh's options; behind it is one command for the peer's shell.
        self.program("ssh", f'while [ "$1" = -o ]; do shift 2; done\nFAKE_PEER=1 PATH={self.bin}:$PATH exec sh -c "$2"')
        self.program("ip", f"echo '{ROUTE.replace('.100.10', '.100.11')}'")
        self.program("ls", f"printf '{DEVICES.strip()}'")
        alone = changed(REDUCED, size=1, bus_gb_s=0.0)
        self.probes = {
            "device": DEVICE,
            "triton_jit": TRITON,
            "marlin": MARLIN,
            "allreduce RANK=0": alone,
        }
        self.write("images.json", {NAME: ID})
        self.loads = 0

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def write(self, name: str, value: Any) -> None:
        (self.home / name).write_text(value if isinstance(value, str) else json.dumps(value))

    def calls(self, *begin: str) -> list[list[str]]:
        file = self.home / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [words for line in lines if (words := json.loads(line))[: len(begin)] == list(begin)]

    def image(self) -> Image:
        def load() -> None:
            self.loads += 1
            raise EngineError("docker could not load the image")

        return Image(NAME, frozenset({ID, "sha256:" + "2" * 64}), load)

    def run(
        self,
        host: Recorded | None = None,
        checks: list[Check] | None = None,
        recipe: Recipe | None = None,
        **options: Any,
    ) -> Report:
        self.write("probes.json", self.probes)
        recipe = recipe or PROJECT.recipe("nemotron-omni")
        chosen = replace(Options(start=120.0, patience=60.0, interval=0.02), **options)
        return run_gpu(
            "sha256:" + "a" * 64,
            CHECKS if checks is None else checks,
            recipe,
            PROJECT.base("hermetic-0.20"),
            self.image(),
            options=chosen,
            host=host or Recorded(),
        )

    def left(self) -> list[str]:
        """Containers that were not removed, and those whose server still runs."""
        folders = [path for path in self.home.iterdir() if path.name.startswith("builder-test-")]
        return [path.name for path in folders if not (path / "removed").exists()]


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Its docker is a program."""
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{made.bin}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_DOCKER", str(made.home))
    yield made
    assert not made.left(), "containers are removed, whatever happens"


@pytest.fixture
def machine(real: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Its docker is a function, which is quicker."""

    threads: dict[str, ThreadingHTTPServer] = {}

    def call(docker: Docker, *words: str, timeout: float = 60) -> Done:
        return Done(*FakeDocker(real.home, bool(docker.peer), threads)(*words))

    monkeypatch.setattr(Docker, "__call__", call)
    return real


def by_id(report: Report) -> dict[str, tuple[str, str]]:
    return {result.id: (result.status, result.message) for result in report.results}


def test_a_healthy_image_passes_everything(real: Machine) -> None:
    report = real.run()
    assert {result.id: result.message for result in report.results if result.status != "pass"} == {}
    assert [result.id for result in report.results] == IDS
    assert {result.tier for result in report.results} == {"gpu"}
    assert report.ok(require=True)
    assert "NVIDIA GB10, driver 580.142" in report.notes[-1]
    assert "Qwen/Qwen3-1.7B" in report.notes[-1]


def test_containers_are_those_of_builder_run_and_only_this_machine_reaches_them(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    machine.run()
    runs = machine.calls("run")
    names = [words[words.index("--name") + 1] for words in runs]
    assert len(set(names)) == len(names)
    assert all(NAME in words and words[words.index("--gpus") + 1] == "all" for words in runs)
    assert not any("--restart" in words for words in runs)
    assert "hf_secret" not in json.dumps(machine.calls())
    [server] = [words for words in runs if "--detach" in words]
    assert server[server.index("--publish") + 1].startswith("127.0.0.1:")
    assert server[server.index("HF_TOKEN") - 1] == "--env"
    assert server[server.index(NAME) + 1 : server.index(NAME) + 2] == ["Qwen/Qwen3-1.7B"]
    assert str(Path.home() / "vllm") + ":/models" in server
    for probe in runs:
        if probe is not server:
            assert "HF_TOKEN" not in probe
            assert "--rm" in probe and "--volume" not in probe
    assert machine.calls("stop"), "the server is asked to end before it is removed"


class TestOtherMachines:
    """Where the tier cannot run, nothing passes."""

    def all_not_run(self, report: Report, why: str) -> None:
        assert [result.id for result in report.results] == IDS
        assert {result.status for result in report.results} == {"not-run"}
        assert all(why in result.message for result in report.results)
        assert report.ok() and not report.ok(require=True)

    def test_no_gpu(self, machine: Machine) -> None:
        self.all_not_run(machine.run(Recorded(commands={})), "no NVIDIA GPU is here")
        assert not machine.calls()

    def test_a_driver_that_does_not_answer(self, machine: Machine) -> None:
        host = Recorded({QUERY: Outcome(9, "NVIDIA-SMI has failed")}, {"/proc/driver/nvidia/version": "NVRM version"})
        self.all_not_run(machine.run(host), "nvidia-smi does not answer, though NVIDIA's driver is loaded")

    def test_another_gpu(self, machine: Machine) -> None:
        host = Recorded({QUERY: Outcome(0, "NVIDIA H200, 9.0, 580.159.04\n")})
        self.all_not_run(machine.run(host), "NVIDIA H200 is no GB10: compute capability 9.0, not 12.1")

    def test_no_docker(self, real: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(real.home))
        self.all_not_run(real.run(), "docker is not installed")

    def test_no_daemon(self, machine: Machine) -> None:
        machine.write("no daemon", "")
        self.all_not_run(machine.run(), "docker's daemon does not answer: Cannot connect")

    def test_an_image_that_docker_does_not_get(self, machine: Machine) -> None:
        machine.write("images.json", {NAME: "sha256:" + "3" * 64})
        self.all_not_run(machine.run(), "docker does not get the image")
        assert machine.loads == 1, "another image of this name does not do"

    def test_this_one(self) -> None:
        if Path("/dev/nvidia0").exists():
            pytest.skip("this machine has a GPU")
        from builder.doctor.host import ThisHost

        with pytest.raises(Unable):
            require_spark(ThisHost())


def test_an_image_is_loaded_when_docker_lacks_it(machine: Machine) -> None:
    machine.write("images.json", {})
    image = machine.image()
    machine.write("probes.json", machine.probes)

    def load() -> None:
        machine.write("images.json", {NAME: "sha256:" + "2" * 64})

    report = run_gpu(
        "sha256:" + "a" * 64,
        [],
        PROJECT.recipe("nemotron-omni"),
        PROJECT.base("hermetic-0.20"),
        replace(image, load=load),
        options=Options(start=120.0, patience=60.0, interval=0.02),
        host=Recorded(),
    )
    assert by_id(report)["device"][0] == "pass", "known by its config's digest"


@pytest.mark.parametrize(
    ("version", "status", "said"),
    [("580.95", "pass", "580.95"), ("590.48", "fail", "deadlocks"), ("570.1", "fail", "older than 580")],
)
def test_the_driver_is_judged_as_doctor_does(machine: Machine, version: str, status: str, said: str) -> None:
    host = Recorded()
    host.commands[DRIVER] = Outcome(0, f"{version}\n")
    machine.write("server", "does not start")
    found = by_id(machine.run(host))["driver"]
    assert found[0] == status
    assert said in found[1]


def test_a_driver_that_cannot_be_asked_is_not_judged(machine: Machine) -> None:
    host = Recorded()
    del host.commands[DRIVER]
    machine.write("server", "does not start")
    assert by_id(machine.run(host))["driver"][0] == "not-run"


def test_each_probe_fails_by_itself(machine: Machine) -> None:
    machine.probes["device"] = {"error": "RuntimeError: torch sees no GPU"}
    machine.probes["triton_jit"] = {"exit": 139, "said": "Segmentation fault"}
    machine.probes["marlin"] = {"not_run": "this vLLM has no fused_marlin_moe"}
    machine.probes["allreduce RANK=0"] = changed(REDUCED, mapped={"/usr/lib/libnccl.so.2": 22907})
    machine.write("server", "does not start")
    found = by_id(machine.run())
    assert found["device"] == ("fail", "RuntimeError: torch sees no GPU")
    assert found["triton-jit"] == ("fail", "the probe ended with 139 and no result: Segmentation fault")
    assert found["marlin-moe-nvfp4"] == ("not-run", "this vLLM has no fused_marlin_moe")
    assert found["nccl-all-reduce"][0] == "fail"
    assert found["driver"][0] == "pass"
    assert found["serve-health"][0] == "fail"
    assert "could not select device driver" in found["serve-health"][1]
    assert found["serve-answer"] == ("not-run", "the server did not come up")


def test_a_finding_without_its_numbers_is_no_pass(machine: Machine) -> None:
    machine.probes["device"] = {"name": "NVIDIA GB10"}
    machine.write("server", "does not start")
    assert by_id(machine.run())["device"] == ("fail", "what came back cannot be read: KeyError: 'capability'")


def test_a_server_that_dies_fails_once_and_the_rest_is_not_run(machine: Machine) -> None:
    machine.write("server", "dies")
    found = by_id(machine.run())
    assert found["serve-health"][0] == "fail"
    assert "no code for sm_121" in found["serve-health"][1]
    rest = {name: each for name, each in found.items() if name.startswith("serve-") and name != "serve-health"}
    assert set(rest.values()) == {("not-run", "the server did not come up")}


def test_one_check_alone_fails_with_the_server(machine: Machine) -> None:
    machine.write("server", "dies")
    report = machine.run(only=("serve-answer",))
    assert [result.id for result in report.results] == ["serve-answer"]
    assert by_id(report)["serve-answer"][0] == "fail"
    assert not [words for words in machine.calls("run") if "--detach" not in words], "no probe was asked for"


def test_faults_of_a_running_server_are_found_each_by_its_check(machine: Machine) -> None:
    machine.write("server", "wrong,no tool call,low acceptance,short,warns,stubborn")
    checks = [*CHECKS, Check(id="serve-stop", tier="gpu", kind="serve-stop", args={"within": 1})]
    found = by_id(machine.run(checks=checks))
    failed = {name for name, (status, _) in found.items() if status == "fail"}
    faulty = ("answer", "stream", "tools", "speculation", "models", "log", "stop")
    assert failed == {f"serve-{name}" for name in faulty}
    assert found["serve-stop"][1] == "it ended with 137, killed after 1 s"
    assert "Something is odd" in found["serve-log"][1]


def test_a_recipe_may_declare_warnings_and_ask_for_more(machine: Machine) -> None:
    machine.write("server", "warns")
    checks = [
        Check(id="serve-log", tier="gpu", kind="serve-log", args={"allow": ["Something is odd"]}),
        Check(id="serve-speculation", tier="gpu", kind="serve-speculation", args={"at-least": 0.9}),
    ]
    found = by_id(machine.run(checks=checks))
    assert found["serve-log"][0] == "pass"
    assert found["serve-speculation"] == ("fail", "240 of 300 drafted tokens accepted, 80%; at least 90% expected")


def test_with_its_own_model_only_what_the_recipe_promises_is_asked(machine: Machine) -> None:
    recipe = PROJECT.recipe("nemotron-omni")
    report = machine.run(recipe=recipe, serve="recipe", offline=True)
    found = by_id(report)
    assert "serve-speculation" not in found
    assert any("serve-speculation does not apply" in note for note in report.notes)
    assert found["serve-models"] == ("fail", "/v1/models has small, not nemotron-omni")
    [server] = [words for words in machine.calls("run") if "--detach" in words]
    assert recipe.model.id in server
    assert "HF_HUB_OFFLINE=1" in server
    assert str(Path.home() / "media") + ":/media:ro" in server


class TestTwoNodes:
    def ranks(self, machine: Machine, **second: Any) -> None:
        machine.probes["allreduce RANK=0"] = REDUCED
        machine.probes["allreduce RANK=1"] = changed(REDUCED, rank=1, **second)
        machine.write("server", "does not start")

    def test_both_ends_reduce_over_the_link(self, real: Machine) -> None:
        machine = real
        self.ranks(machine)
        found = by_id(machine.run(checks=[*CHECKS, TWO_NODES], peer="192.168.100.11"))["nccl-two-nodes"]
        assert found == ("pass", "2 ranks, NCCL 2.29.7, bus bandwidth 13.4 GB/s, roce over enp1s0f0np0")
        here = next(words for words in machine.calls("run") if "WORLD_SIZE=2" in words)
        there = next(words for words in machine.calls("peer", "run") if "WORLD_SIZE=2" in words)
        for words, rank, address in ((here, "0", "10"), (there, "1", "11")):
            assert {f"RANK={rank}", f"VLLM_HOST_IP=192.168.100.{address}", "MASTER_ADDR=192.168.100.10"} <= set(words)
            assert {"NCCL_IB_HCA=rocep1s0f0", "NCCL_SOCKET_IFNAME=enp1s0f0np0", "/dev/infiniband"} <= set(words)
        assert machine.calls("peer", "rm"), "the peer's container is removed as well"

    def test_without_the_layer_a_peer_is_enough(self, machine: Machine) -> None:
        self.ranks(machine)
        assert by_id(machine.run(peer="192.168.100.11"))["nccl-two-nodes"][0] == "pass"

    def test_without_a_peer_it_is_not_run(self, machine: Machine) -> None:
        self.ranks(machine)
        assert by_id(machine.run(checks=[*CHECKS, TWO_NODES]))["nccl-two-nodes"] == (
            "not-run",
            "no second Spark was given: --peer ADDRESS",
        )

    @pytest.mark.parametrize(
        ("second", "said"),
        [
            ({"log": ["NCCL INFO NET/Socket : Using [0]wlp9s0:10.0.0.2<0>", "NCCL INFO Using network Socket"]}, "roce"),
            ({"error": {"sum": 3.0, "scaled": 0.0}}, "rank 1: the sum over 2 ranks is off by 3"),
            ({"mapped": {"/usr/lib/libnccl.so.2": 22907}}, "rank 1: libnccl in memory"),
        ],
    )
    def test_what_is_wrong_on_the_other_node_fails(self, machine: Machine, second: dict[str, Any], said: str) -> None:
        self.ranks(machine, **second)
        status, message = by_id(machine.run(checks=[*CHECKS, TWO_NODES], peer="192.168.100.11"))["nccl-two-nodes"]
        assert status == "fail"
        assert said in message

    def test_a_rank_that_breaks_fails(self, machine: Machine) -> None:
        self.ranks(machine)
        machine.probes["allreduce RANK=1"] = {"exit": 1, "said": "NCCL WARN connection refused"}
        status, message = by_id(machine.run(checks=[*CHECKS, TWO_NODES], peer="192.168.100.11"))["nccl-two-nodes"]
        assert (status, message.partition(":")[0]) == ("fail", "rank 1")
        assert "connection refused" in message

    @pytest.mark.parametrize(
        ("images", "status", "said"),
        [({}, "not-run", "has no image"), ({NAME: "sha256:" + "9" * 64}, "fail", "another image on 192.168.100.11")],
    )
    def test_the_peer_needs_the_same_image(
        self, machine: Machine, images: dict[str, str], status: str, said: str
    ) -> None:
        self.ranks(machine)
        (machine.home / "peer/images.json").write_text(json.dumps(images))
        found = by_id(machine.run(checks=[*CHECKS, TWO_NODES], peer="192.168.100.11"))["nccl-two-nodes"]
        assert found[0] == status
        assert said in found[1]

    def test_a_peer_that_ssh_does_not_reach_is_not_run(self, machine: Machine) -> None:
        self.ranks(machine)
        machine.program("ssh", "echo 'Permission denied (publickey).' >&2; exit 255")
        status, message = by_id(machine.run(checks=[*CHECKS, TWO_NODES], peer="192.168.100.11"))["nccl-two-nodes"]
        assert status == "not-run"
        assert "Permission denied" in message

    def test_an_address_that_is_not_on_the_link_is_not_run(self, machine: Machine) -> None:
        self.ranks(machine)
        for options, said in (({"peer": "10.0.0.9"}, "no route"), ({"interface": "eth7"}, "not over eth7")):
            report = machine.run(checks=[*CHECKS, TWO_NODES], **{"peer": "192.168.100.11", **options})
            status, message = by_id(report)["nccl-two-nodes"]
            assert status == "not-run"
            assert said in message

    def test_its_own_model_is_served_by_head_and_worker(self, machine: Machine) -> None:
        recipe = PROJECT.recipe("minimax-m2.7-dual")
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        flags = {**recipe.serve.flags, "port": port, "served-model-name": "small"}
        recipe = recipe.model_copy(
            update={
                "run": recipe.run.model_copy(update={"port": port}),
                "serve": recipe.serve.model_copy(update={"flags": flags}),
            }
        )
        report = machine.run(recipe=recipe, serve="recipe", peer="192.168.100.11", pause=0.0)
        found = by_id(report)
        assert found["serve-health"][0] == found["serve-answer"][0] == found["serve-stop"][0] == "pass"
        [head] = [words for words in machine.calls("run") if "--detach" in words]
        [worker] = [words for words in machine.calls("peer", "run") if "--detach" in words]
        assert "ray start --head" in head[-1] and "VLLM_HOST_IP=192.168.100.10" in head
        assert "ray start --address=192.168.100.10:6379" in worker[-1] and "VLLM_HOST_IP=192.168.100.11" in worker
        assert worker[worker.index("--name") + 1] in {words[-1] for words in machine.calls("peer", "rm")}

    def test_its_own_model_needs_a_peer(self, machine: Machine) -> None:
        found = by_id(machine.run(recipe=PROJECT.recipe("minimax-m2.7-dual"), serve="recipe"))
        assert found["serve-answer"] == ("not-run", "no second Spark was given: --peer ADDRESS")


@pytest.mark.parametrize(("output", "status"), [(PERF, "pass"), ("Test NCCL failure", "fail")])
def test_a_given_nccl_tests_program_is_run_in_the_image(machine: Machine, output: str, status: str) -> None:
    machine.write("program", output)
    machine.write("server", "does not start")
    program = machine.home / "all_reduce_perf"
    program.touch()
    assert by_id(machine.run(nccl_tests=program))["nccl-tests"][0] == status
    [words] = [words for words in machine.calls("run") if "/opt/builder-program" in words]
    assert f"{program}:/opt/builder-program:ro" in words


class TestInterruption:
    """Ctrl-C, and a runner that is told to end, in the middle of a probe and of serving."""

    PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from builder.__main__ import handle_sigterm
from tests.unit.smoke.test_gpu_tier import TWO_NODES, Machine
from pathlib import Path
machine = Machine.__new__(Machine)
machine.home, machine.loads, machine.probes = Path({home!r}), 0, {probes!r}
handle_sigterm()
machine.run(checks=[TWO_NODES], peer="192.168.100.11")
"""

    @pytest.mark.parametrize(
        ("hangs", "sent"),
        [("device", signal.SIGINT), ("allreduce RANK=1", signal.SIGINT), ("", signal.SIGTERM), ("", signal.SIGINT)],
    )
    def test_removes_the_containers(self, real: Machine, hangs: str, sent: signal.Signals) -> None:
        machine = real
        machine.write("server", "unhealthy")
        known = machine.probes if not hangs else {**machine.probes, hangs: "hang"}
        text = self.PROGRAM.format(root=str(ROOT), home=str(machine.home), probes=known)
        process = subprocess.Popen([sys.executable, "-c", text], stderr=subprocess.DEVNULL)
        named = {"device": "*-device-*", "": "builder-test-nemotron-omni-????????"}.get(hangs, "*-allreduce-1-*")
        end = time.monotonic() + 120
        while time.monotonic() < end:
            running = [path for path in machine.home.glob(named) if (path / "pid").exists()]
            if any(not (path / "removed").exists() for path in running):
                break
            time.sleep(0.02)
        else:
            process.kill()
            pytest.fail("no container was started")
        process.send_signal(sent)
        assert process.wait(timeout=120) != 0
        assert not machine.left()
        pids = [int(file.read_text()) for file in machine.home.glob("builder-test-*/pid")]
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()], "no server is left behind"


def test_probes_run_where_nothing_of_builder_is(tmp_path: Path) -> None:
    """The command of a probe's container, run by this interpreter: it unpacks and runs what it carries."""
    container = gpu_probe.probe_container(_container(), "marlin", '{"what": "moe"}')
    assert container.entrypoint == "python3"
    command = [sys.executable, "-s", *container.command]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    # This machine has no torch, an image has: what is shown is that the probe itself was started and reports.
    with pytest.raises(Failed, match="No module named 'torch'"):
        gpu_probe.read(Done(done.returncode, done.stdout, done.stderr), 60)


def _container() -> Any:
    from builder.serve.spec import container

    return container(PROJECT.recipe("nemotron-omni"), PROJECT.base("hermetic-0.20"), NAME)


def test_a_container_that_does_not_end_is_killed_and_removed(real: Machine) -> None:
    machine = real
    machine.write("probes.json", {"device": "hang"})
    begin = time.monotonic()
    with pytest.raises(Failed, match=r"did not end within 0\.5 s"):
        gpu_probe.ask(Docker(), gpu_probe.probe_container(_container(), "device"), 0.5)
    assert time.monotonic() - begin < 10
    assert machine.calls("rm")


class TestKinds:
    def test_every_gpu_check_of_the_project_exists_and_has_the_right_arguments(self) -> None:
        from builder.plan.resolve import resolve

        kinds = set()
        for name in PROJECT.recipe_names():
            recipe = PROJECT.recipe(name)
            base = next((each for each in ("hermetic-0.20", "hermetic-0.23") if each in recipe.compatible), recipe.base)
            if PROJECT.base(base).family == "hermetic":
                plan = resolve(PROJECT, recipe, base=base)
                kinds |= {check.kind for check in plan.checks if check.tier == "gpu" and kinds_gpu.make(check)}
        assert kinds >= {"nccl-all-reduce", "triton-jit", "marlin-moe", "marlin-linear", "nccl-two-nodes"}
        assert all(kinds_gpu.make(check) for check in kinds_gpu.defaults())

    @pytest.mark.parametrize(
        ("kind", "args"),
        [
            ("no-such", {}),
            ("marlin-moe", {"format": "int3"}),
            ("serve-decode", {"at-most": 1}),
            ("serve-stop", {"within": "x"}),
        ],
    )
    def test_an_unknown_one_is_refused(self, kind: str, args: dict[str, Any]) -> None:
        with pytest.raises(InvalidError):
            kinds_gpu.make(Check(id="x", tier="gpu", kind=kind, args=args))


class TestSmallModel:
    def test_every_base_with_a_table_has_what_its_command_says(self) -> None:
        from builder.knowledge.table import load_table

        seen = 0
        flags = small(PROJECT.recipe("nemotron-omni")).serve.flags
        for name in PROJECT.base_names():
            version = PROJECT.base(name).vllm
            table = load_table(version) if version else None
            if table is None:
                continue
            seen += 1
            unknown = [flag for flag in flags if not table.has_flag(flag)]
            assert not unknown, f"{name}: {unknown}"
        assert seen > 5

    def test_what_the_base_needs_of_every_model_stays(self) -> None:
        recipe = PROJECT.recipe("gpt-oss-120b")
        made = small(recipe)
        assert made.serve.flags["attention-backend"] == recipe.serve.flags["attention-backend"] == "TRITON_ATTN"
        assert made.nodes == 1
        assert small(PROJECT.recipe("minimax-m2.7-dual")).nodes == 1


def test_tests_run_in_a_thread_as_well(machine: Machine) -> None:
    """Signals can be caught in the main thread only; elsewhere the tier does without."""
    reports: list[Report] = []
    machine.write("server", "does not start")
    thread = threading.Thread(target=lambda: reports.append(machine.run()))
    thread.start()
    thread.join(60)
    assert by_id(reports[0])["device"][0] == "pass"
