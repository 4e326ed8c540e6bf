"""Recorded outputs of a Spark, with changes, and what the doctor says of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from builder.doctor.checks import examine
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
            "uname -m": Outcome(0, "aarch64\n"),
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
