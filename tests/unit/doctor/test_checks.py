"""The doctor, on recorded outputs of a Spark and of a plain machine, with one fault at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from builder.doctor.checks import CHECKS, examine
from builder.doctor.host import Outcome
from builder.doctor.question import Question
from builder.engine.containers import ListedContainer
from tests.support.recorded_spark import (
    BUILDAH,
    BUILDX,
    CACHED,
    DENIED,
    DRIVER,
    FRONT_END,
    GID,
    GPU,
    PING,
    PROJECT,
    SILENT,
    SPARK_MEMORY,
    TWO,
    Recorded,
    answers,
    meminfo,
    spark,
    states,
)


def test_a_spark_without_faults_passes_every_check() -> None:
    found = states(spark(), **TWO)
    assert {id: state for id, state in found.items() if state != "ok"} == {"leaked-memory": "unknown"}
    assert len(found) == len(CHECKS) - 4, "token, login, front end and --hca have nothing to do with it"
    assert states(spark(), "gemma4-31b")["token"] == "ok"


def test_on_a_plain_machine_unknown_facts_do_not_fail() -> None:
    plain = Recorded(files={"/proc/meminfo": meminfo(**SPARK_MEMORY)})
    assert "failed" not in states(plain).values()
    bare = states(Recorded(disk=None))
    assert bare.pop("engine") == "warning", "that no engine is there can be seen"
    assert bare == dict.fromkeys(bare, "unknown")


def test_two_nodes_without_interface_and_peer_are_unknown() -> None:
    found = states(spark(), "minimax-m2.7-dual")
    assert (found["link"], found["peer"]) == ("unknown", "unknown")
    assert "link" not in states(spark(), "qwen3.6-35b")


@pytest.mark.parametrize(
    ("check", "state", "changed"),
    [
        ("driver", "failed", {"commands": {DRIVER: Outcome(0, "590.44.01\n")}}),
        ("driver", "failed", {"commands": {DRIVER: Outcome(0, "570.10\n")}}),
        ("kernel", "failed", {"commands": {"uname -r": Outcome(0, "7.0.0-1019-nvidia\n")}}),
        ("docker", "failed", {"docker": DENIED}),
        ("docker", "failed", {"docker": SILENT}),
        ("gpu-runtime", "failed", {"docker": {"Runtimes": {"runc": {}}}}),
        ("memory", "failed", {"files": {"/proc/meminfo": meminfo(**{**SPARK_MEMORY, "MemAvailable": 60})}}),
        ("page-cache", "warning", {"files": {"/proc/meminfo": meminfo(**{**SPARK_MEMORY, "MemFree": 86} | CACHED)}}),
        ("leaked-memory", "failed", {"files": {"/proc/meminfo": meminfo(**{**SPARK_MEMORY, "MemFree": 77})}}),
        ("engine", "warning", {"commands": {BUILDX: Outcome(1, ""), BUILDAH: Outcome(127, "")}}),
        ("front-end", "warning", {"running": (ListedContainer("ui", FRONT_END, ("bridge",)),)}),
        ("disk", "failed", {"disk": 10_000_000_000}),
        ("link", "failed", {"files": {"/sys/class/net/enp1s0f0np0/mtu": "1500\n"}}),
        ("link", "failed", {"files": {"/sys/class/net/enp1s0f0np0/operstate": "down\n"}}),
        ("roce", "failed", {"files": {f"{GID}/gid_attrs/types/3": "IB/RoCE v1\n"}}),
        ("memlock", "warning", {"files": {"/proc/self/limits": "Max locked memory  8388608  8388608  bytes\n"}}),
        ("peer", "failed", {"commands": {PING: Outcome(1, "message too long")}}),
    ],
)
def test_one_fault_is_found_with_a_fix(check: str, state: str, changed: dict[str, Any]) -> None:
    question = Question(spark(**changed), PROJECT.recipe(TWO["recipe"]), None, TWO["interface"], TWO["peer"])
    found = {item.id: item for item in examine(question)}
    assert found[check].state == state
    assert found[check].fix
    others = {item.id: item.state for item in found.values() if item.id != check and item.state != "ok"}
    others.pop("leaked-memory", None)
    assert others in ({}, {"gpu-runtime": "unknown"}), "what docker does not answer cannot be seen"


@pytest.mark.parametrize(
    ("recipe", "changed", "state", "message", "fix"),
    [
        ("nemotron-omni", {}, "ok", "19 for weights and 77 for the rest", ""),
        ("nemotron-omni", {"MemAvailable": 60}, "failed", "60 of 120 GiB are available; vLLM takes 96", "to 0.5 in"),
        ("qwen3-coder-next", {"MemAvailable": 60}, "failed", "79 for weights", "stop other programs"),
        ("qwen3-coder-next", {"MemTotal": 60, "MemAvailable": 58}, "failed", "79 GiB of weights do not fit", "smaller"),
    ],
)
def test_the_memory_must_hold_the_weights(
    recipe: str, changed: dict[str, float], state: str, message: str, fix: str
) -> None:
    machine = spark(files={"/proc/meminfo": meminfo(**{**SPARK_MEMORY, **changed})})
    found = answers(machine, recipe)["memory"]
    assert (found.state, message in found.message, fix in found.fix) == (state, True, True), found


@pytest.mark.parametrize(
    ("changed", "why"),
    [({"uname -m": Outcome(0, "x86_64\n")}, "processor is x86_64"), ({GPU: Outcome(0, "NVIDIA H200, 9.0\n")}, "H200")],
)
def test_a_machine_that_is_no_spark_is_told(changed: dict[str, Outcome], why: str) -> None:
    found = answers(spark(commands=changed))["machine"]
    assert (found.state, "no Spark" in found.message, why in found.message) == ("warning", True, True)
    assert answers(spark(commands=changed), "nemotron-omni")["machine"].state == "failed", "it cannot serve the recipe"


def test_sockets_need_no_rdma_device() -> None:
    machine = spark()
    machine.files = {path: text for path, text in machine.files.items() if not path.startswith(GID)}
    assert "roce" not in states(machine, **{**TWO, "recipe": "qwen3.5-122b-fp8-dual"})
    assert states(machine, **TWO)["roce"] == "failed"


def test_the_disk_has_room_for_all_of_the_weights_or_has_them() -> None:
    asked = answers(spark(disk=100_000_000_000), **TWO)["disk"]
    assert (asked.state, asked.message) == ("failed", "100 GB free; about 160 for image and weights")
    home = "/home/spark"
    machine = spark(disk=100_000_000_000, variables={"HOME": home})
    folder = f"{home}/vllm/hub/models--saricles--MiniMax-M2.7-NVFP4-GB10-AC/snapshots/abc"
    machine.files[f"{folder}/model-00001.safetensors"] = ""
    assert answers(machine, **TWO)["disk"].state == "ok"
    local = spark(disk=32_000_000_000, variables={"HOME": home})
    assert answers(local, "gemma4-12b-coder")["disk"].state == "failed"
    local.files[f"{home}/vllm/gemma4-coder/model.safetensors"] = ""
    assert answers(local, "gemma4-12b-coder")["disk"].state == "ok"


def test_kho_switched_off_passes() -> None:
    machine = spark(commands={"uname -r": Outcome(0, "7.0.0-1019-nvidia\n")}, files={"/proc/cmdline": "quiet kho=off"})
    assert states(machine, **TWO)["kernel"] == "ok"


def test_a_gated_model_needs_a_token() -> None:
    assert states(spark(variables={}), "gemma4-31b")["token"] == "failed"


def test_an_engine_is_either_of_the_two() -> None:
    without_docker = spark(commands={BUILDX: Outcome(1, "unknown command")})
    assert "compiled with buildah (buildah version 1.39.3" in answers(without_docker)["engine"].message
    assert "docker (github.com/docker/buildx v0.21.2) or buildah" in answers(spark())["engine"].message


def test_a_base_for_driver_590_on_580_is_a_warning_with_the_log_line_to_check() -> None:
    found = answers(spark(), "nemotron-nano")["driver"]
    assert found.state == "warning"
    assert "built for 590.44 or newer" in found.message
    assert "UNAVAILABLE" in found.fix
    assert answers(spark(), "nemotron-nano-openai")["driver"].state == "ok"


CONFIG = "/home/spark/.docker/config.json"


@pytest.mark.parametrize(
    ("config", "state"),
    [
        ({}, "warning"),
        ({"auths": {"ghcr.io": {"auth": "c2VjcmV0"}}}, "warning"),
        ({"auths": {"nvcr.io": {"auth": "c2VjcmV0"}}}, "ok"),
        ({"credHelpers": {"nvcr.io": "secretservice"}}, "ok"),
        ({"credsStore": "pass"}, "ok"),
    ],
)
def test_a_login_for_nvidias_registry_is_found_and_not_used(config: dict[str, Any], state: str) -> None:
    machine = spark(files={CONFIG: json.dumps(config)}, variables={"HOME": "/home/spark"})
    found = answers(machine, "gpt-oss-120b")["registry"]
    assert found.state == state
    assert "c2VjcmV0" not in found.message + found.fix
    assert "registry" not in answers(machine, "qwen3.6-35b")


def test_a_front_end_on_a_network_of_its_own_passes() -> None:
    machine = spark(running=(ListedContainer("ui", FRONT_END, ("ai",)),))
    assert states(machine)["front-end"] == "ok"
