"""A recorded machine and programs that stand for its docker and ssh, for the gpu tier."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from builder.doctor.host import Outcome
from builder.errors import EngineError
from builder.model.check import Check
from builder.model.recipe import Recipe
from builder.project import Project
from builder.smoke.gpu.machine import GpuImage, Options
from builder.smoke.gpu.run import run_gpu
from builder.smoke.report import Report
from tests.support.project import ROOT
from tests.unit.smoke.test_gpu_judge import DEVICE, MARLIN, REDUCED, TRITON, changed

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

    def image(self) -> GpuImage:
        def load() -> None:
            self.loads += 1
            raise EngineError("docker could not load the image")

        return GpuImage(NAME, frozenset({ID, "sha256:" + "2" * 64}), load)

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


def by_id(report: Report) -> dict[str, tuple[str, str]]:
    return {result.id: (result.status, result.message) for result in report.results}


def served() -> Any:
    from builder.serve.spec import container

    return container(PROJECT.recipe("nemotron-omni"), PROJECT.base("hermetic-0.20"), NAME)
