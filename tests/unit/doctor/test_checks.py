"""The doctor, with recorded outputs of a Spark and of a plain machine, and one thing broken at a time."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from builder.doctor.checks import CHECKS, Question, examine
from builder.doctor.host import Outcome
from builder.project import Project

PROJECT = Project()
DRIVER = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"
GPU = "nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader"
APPS = "nvidia-smi --query-compute-apps=pid --format=csv,noheader"
INFO = "docker info --format {{json .}}"
PING = "ping -c 1 -W 2 -M do -s 8972 192.168.100.11"
GID = "/sys/class/infiniband/rocep1s0f0/ports/1"


def meminfo(**gib: float) -> str:
    return "".join(f"{name}:{int(value * (1 << 20)):12} kB\n" for name, value in gib.items())


SPARK_MEMORY = {"MemTotal": 119.7, "MemFree": 110, "MemAvailable": 114, "Cached": 5, "AnonPages": 2, "Slab": 1}
CACHED = {"Cached": 29}


@dataclass
class Recorded:
    """A machine as recorded: commands by their words, files by their paths."""

    commands: dict[str, Outcome] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    disk: int | None = 900_000_000_000
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, *words: str) -> Outcome | None:
        return self.commands.get(" ".join(words))

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def glob(self, pattern: str) -> tuple[str, ...]:
        prefix = pattern.rstrip("*")
        below = (path.removeprefix(prefix) for path in self.files if path.startswith(prefix))
        return tuple(sorted({prefix + path.split("/")[0] for path in below}))

    def free_disk(self, path: str) -> int | None:
        return self.disk

    def env(self, name: str) -> str | None:
        return self.variables.get(name)


def spark(**changed: Any) -> Recorded:
    """A DGX Spark with a direct link, in good order."""
    machine = Recorded(
        commands={
            DRIVER: Outcome(0, "580.142\n"),
            GPU: Outcome(0, "NVIDIA GB10, 12.1\n"),
            APPS: Outcome(0, ""),
            INFO: Outcome(0, json.dumps({"Runtimes": {"nvidia": {}, "runc": {}}})),
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
    )
    machine.commands.update(changed.get("commands", {}))
    machine.files.update(changed.get("files", {}))
    machine.disk = changed.get("disk", machine.disk)
    machine.variables = changed.get("variables", machine.variables)
    return machine


def states(machine: Recorded, recipe: str | None = None, **more: Any) -> dict[str, str]:
    found = PROJECT.recipe(recipe) if recipe else None
    return {item.id: item.state for item in examine(Question(machine, found, None, **more))}


TWO: dict[str, Any] = {"recipe": "minimax-m2.7-dual", "interface": "enp1s0f0np0", "peer": "192.168.100.11"}


def test_a_spark_in_good_order_passes_everything() -> None:
    found = states(spark(), **TWO)
    assert set(found.values()) == {"ok"}
    assert len(found) == len(CHECKS) - 1, "a token is not needed"
    assert states(spark(), "gemma4-31b")["token"] == "ok"


def test_on_a_plain_machine_nothing_fails_that_cannot_be_seen() -> None:
    plain = Recorded(files={"/proc/meminfo": meminfo(**SPARK_MEMORY)})
    assert "failed" not in states(plain).values()
    assert states(Recorded(disk=None)) == dict.fromkeys(states(Recorded(disk=None)), "unknown")


def test_two_nodes_that_are_not_described_are_asked_for() -> None:
    found = states(spark(), "minimax-m2.7-dual")
    assert (found["link"], found["peer"]) == ("unknown", "unknown")
    assert "link" not in states(spark(), "qwen3.6-35b")


def info(**data: Any) -> dict[str, Outcome]:
    return {INFO: Outcome(0, json.dumps(data))}


@pytest.mark.parametrize(
    ("check", "state", "changed"),
    [
        ("driver", "failed", {"commands": {DRIVER: Outcome(0, "590.44.01\n")}}),
        ("driver", "failed", {"commands": {DRIVER: Outcome(0, "570.10\n")}}),
        ("gpu", "warning", {"commands": {GPU: Outcome(0, "NVIDIA H200, 9.0\n")}}),
        ("kernel", "failed", {"commands": {"uname -r": Outcome(0, "7.0.0-1019-nvidia\n")}}),
        ("docker", "failed", {"commands": {INFO: Outcome(1, "permission denied while trying to connect")}}),
        ("gpu-runtime", "failed", {"commands": info(Runtimes={"runc": {}})}),
        ("memory", "failed", {"files": {"/proc/meminfo": meminfo(**{**SPARK_MEMORY, "MemAvailable": 60})}}),
        ("page-cache", "warning", {"files": {"/proc/meminfo": meminfo(**{**SPARK_MEMORY, "MemFree": 86} | CACHED)}}),
        ("leaked-memory", "failed", {"files": {"/proc/meminfo": meminfo(**{**SPARK_MEMORY, "MemFree": 77})}}),
        ("disk", "failed", {"disk": 10_000_000_000}),
        ("link", "failed", {"files": {"/sys/class/net/enp1s0f0np0/mtu": "1500\n"}}),
        ("link", "failed", {"files": {"/sys/class/net/enp1s0f0np0/operstate": "down\n"}}),
        ("roce", "failed", {"files": {f"{GID}/gid_attrs/types/3": "IB/RoCE v1\n"}}),
        ("memlock", "warning", {"files": {"/proc/self/limits": "Max locked memory  8388608  8388608  bytes\n"}}),
        ("peer", "failed", {"commands": {PING: Outcome(1, "message too long")}}),
    ],
)
def test_one_thing_broken_is_found_with_a_fix(check: str, state: str, changed: dict[str, Any]) -> None:
    question = Question(spark(**changed), PROJECT.recipe(TWO["recipe"]), None, TWO["interface"], TWO["peer"])
    answers = {item.id: item for item in examine(question)}
    assert answers[check].state == state
    assert answers[check].fix
    others = {item.id: item.state for item in answers.values() if item.id != check and item.state != "ok"}
    assert others in ({}, {"gpu-runtime": "unknown"}), "what docker does not answer cannot be seen"


def test_kho_switched_off_is_fine() -> None:
    machine = spark(commands={"uname -r": Outcome(0, "7.0.0-1019-nvidia\n")}, files={"/proc/cmdline": "quiet kho=off"})
    assert states(machine, **TWO)["kernel"] == "ok"


def test_a_gated_model_needs_a_token() -> None:
    assert states(spark(variables={}), "gemma4-31b")["token"] == "failed"
