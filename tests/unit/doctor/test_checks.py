"""The doctor, on recorded outputs of a Spark and of a plain machine, with one fault at a time."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import pytest

from builder.doctor.checks import CHECKS, examine
from builder.doctor.host import Outcome
from builder.doctor.question import Answer, Question
from builder.engine.containers import ListedContainer
from builder.errors import EngineError
from builder.project import Project

PROJECT = Project()
DRIVER = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"
GPU = "nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader"
APPS = "nvidia-smi --query-compute-apps=pid --format=csv,noheader"
DENIED = EngineError("docker's daemon refuses this user", id="docker-permission-denied", next="newgrp docker")
SILENT = EngineError("docker's daemon does not answer", id="docker-unreachable", next="systemctl start docker")
FRONT_END = "ghcr.io/open-webui/open-webui:main"
BUILDX = "docker buildx version"
BUILDAH = "buildah --version"
PING = "ping -c 1 -W 2 -M do -s 8972 192.168.100.11"
GID = "/sys/class/infiniband/rocep1s0f0/ports/1"


def meminfo(**gib: float) -> str:
    return "".join(f"{name}:{int(value * (1 << 20)):12} kB\n" for name, value in gib.items())


SPARK_MEMORY = {"MemTotal": 119.7, "MemFree": 110, "MemAvailable": 114, "Cached": 5, "AnonPages": 2, "Slab": 1}
CACHED = {"Cached": 29}


@dataclass
class Recorded:
    """A recorded machine: commands by their arguments, files by their paths."""

    commands: dict[str, Outcome] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    disk: int | None = 900_000_000_000
    variables: dict[str, str] = field(default_factory=dict)
    docker: dict[str, Any] | EngineError = SILENT
    running: tuple[ListedContainer, ...] = ()

    def docker_info(self) -> dict[str, Any]:
        if isinstance(self.docker, EngineError):
            raise self.docker
        return self.docker

    def containers(self) -> tuple[ListedContainer, ...]:
        self.docker_info()
        return self.running

    def run(self, *words: str) -> Outcome | None:
        return self.commands.get(" ".join(words))

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def glob(self, pattern: str) -> tuple[str, ...]:
        if not pattern.endswith("*"):
            return tuple(sorted(path for path in self.files if fnmatchcase(path, pattern)))
        prefix = pattern.rstrip("*")
        below = (path.removeprefix(prefix) for path in self.files if path.startswith(prefix))
        return tuple(sorted({prefix + path.split("/")[0] for path in below}))

    def free_disk(self, path: str) -> int | None:
        return self.disk

    def env(self, name: str) -> str | None:
        return self.variables.get(name)


def spark(**changed: Any) -> Recorded:
    """A DGX Spark with a direct link and without faults."""
    machine = Recorded(
        commands={
            DRIVER: Outcome(0, "580.142\n"),
            GPU: Outcome(0, "NVIDIA GB10, 12.1\n"),
            APPS: Outcome(0, ""),
            BUILDX: Outcome(0, "github.com/docker/buildx v0.21.2\n"),
            BUILDAH: Outcome(0, "buildah version 1.39.3 (image-spec 1.1.0, runtime-spec 1.2.0)\n"),
            "docker --version": Outcome(0, "Docker version 28.2.2"),
            "uname -r": Outcome(0, "6.17.0-1032-nvidia\n"),
            PING: Outcome(0, "1 received"),
        },
        files={
            "/proc/meminfo": meminfo(**SPARK_MEMORY),
            "/proc/cmdline": "root=/dev/nvme0n1p2",
            "/proc/self/limits": "Max locked memory         unlimited            unlimited            bytes\n",
            "/sys/class/net/enp1s0f0np0/mtu": "9000\n",
            "/sys/class/net/enp1s0f0np0/operstate": "up\n",
            f"{GID}/gid_attrs/types/3": "RoCE v2\n",
            f"{GID}/gids/3": "0000:0000:0000:0000:0000:ffff:c0a8:640a\n",
        },
        variables={"HF_TOKEN": "x"},
        docker={"ServerVersion": "28.2.2", "Runtimes": {"nvidia": {}, "runc": {}}},
        running=(ListedContainer("qwen", "vllm/vllm-openai:v0.23.0", ("bridge",)),),
    )
    machine.commands.update(changed.get("commands", {}))
    machine.files.update(changed.get("files", {}))
    machine.disk = changed.get("disk", machine.disk)
    machine.docker = changed.get("docker", machine.docker)
    machine.running = changed.get("running", machine.running)
    machine.variables = changed.get("variables", machine.variables)
    return machine


def answers(machine: Recorded, recipe: str | None = None, **more: Any) -> dict[str, Answer]:
    found = PROJECT.recipe(recipe) if recipe else None
    base = PROJECT.base(found.base) if found else None
    return {item.id: item for item in examine(Question(machine, found, base, **more))}


def states(machine: Recorded, recipe: str | None = None, **more: Any) -> dict[str, str]:
    return {id: item.state for id, item in answers(machine, recipe, **more).items()}


TWO: dict[str, Any] = {"recipe": "minimax-m2.7-dual", "interface": "enp1s0f0np0", "peer": "192.168.100.11"}


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
        ("gpu", "warning", {"commands": {GPU: Outcome(0, "NVIDIA H200, 9.0\n")}}),
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
