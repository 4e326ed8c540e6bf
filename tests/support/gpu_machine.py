"""A recorded machine with fake docker daemons, its own and a peer's behind a fake ssh, for the gpu tier."""

from __future__ import annotations

import json
import re
import sys
import threading
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
from tests.support import openai_server
from tests.support.docker_state import DockerDaemon, FakeContainer
from tests.support.gpu_findings import DEVICE, MARLIN, REDUCED, TRITON, changed
from tests.support.project import ROOT

PROJECT = Project()
QUERY = "nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv,noheader"
DRIVER = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"
APPS = "nvidia-smi --query-compute-apps=pid --format=csv,noheader"
ROUTE = '[{"dst":"192.168.100.11","dev":"enp1s0f0np0","prefsrc":"192.168.100.10","flags":[],"uid":0,"cache":[]}]'
DEVICES = "/sys/class/infiniband/rocep1s0f0/device/net/enp1s0f0np0\n"
DIAL = ROOT / "tests/support/dial_stdio.py"
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
    """Two docker daemons and what their containers do, and programs on the path that stand for ssh.

    Files of `home` set what containers do: `probes.json` what each probe prints (or {"exit": code, "stderr": text},
    or "hang"), `server` the faults of the server, `program` what a program of the host prints.
    """

    def __init__(self, folder: Path, docker: DockerDaemon, peer: DockerDaemon) -> None:
        self.home = folder / "machine"
        self.bin = folder / "bin"
        self.docker, self.peer = docker, peer
        self.home.mkdir()
        self.bin.mkdir()
        # What begins with a hyphen are ssh's options; the address and one command for the peer's shell follow.
        self.program(
            "ssh",
            'while [ "${1#-}" != "$1" ]; do case $1 in --) shift; break ;; esac; shift 2; done\n'
            f'[ "$2" != "docker system dial-stdio" ] || exec {sys.executable} -IS {DIAL} {peer.socket}\n'
            f'PATH={self.bin}:$PATH exec sh -c "$2"',
        )
        self.program("ip", f"echo '{ROUTE.replace('.100.10', '.100.11')}'")
        self.program("ls", f"printf '{DEVICES.strip()}'")
        self.probes = {
            "device": DEVICE,
            "triton_jit": TRITON,
            "marlin": MARLIN,
            "allreduce RANK=0": changed(REDUCED, size=1, bus_gb_s=0.0),
        }
        for daemon in (docker, peer):
            daemon.images[NAME] = ID
            daemon.program, daemon.refuse = self.run_container, self.refuse_container
        self.loads = 0

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def write(self, name: str, value: Any) -> None:
        (self.home / name).write_text(value if isinstance(value, str) else json.dumps(value))

    def faults(self) -> list[str]:
        """How the server misbehaves."""
        file = self.home / "server"
        return [fault for fault in file.read_text().split(",") if fault] if file.exists() else []

    def refuse_container(self, container: FakeContainer) -> str:
        refused = is_server(container) and "does not start" in self.faults()
        return "could not select device driver" if refused else ""

    def run_container(self, container: FakeContainer) -> int:
        """What a container does: a probe, a program of the host, or a server."""
        if "/opt/builder-program" in container.words:
            container.print((self.home / "program").read_text())
            return 0
        if is_server(container):
            return self.serve(container)
        probe = container.words[4]
        answers = json.loads((self.home / "probes.json").read_text())
        answer = answers.get(f"{probe} RANK={container.env.get('RANK')}", answers.get(probe))
        if answer == "hang":
            container.asked.wait(120)
            return 137
        if answer is None:
            return 64
        if "exit" in answer:
            container.print(answer["stderr"] + "\n", 2)
            return int(answer["exit"])
        container.print(f"noise\n@builder-probe {json.dumps(answer)}\n")
        return 0

    def serve(self, container: FakeContainer) -> int:
        """A server in this process."""
        command = " ".join(container.words)
        if "--headless" in command or "ray start --address" in command:
            container.asked.wait(120)
            return 0
        faults = self.faults()
        container.print(openai_server.log(faults))
        if "dies" in faults:
            return 1
        bindings = (container.host.get("PortBindings") or {}).values()
        ports = [each["HostPort"] for binding in bindings for each in binding]
        server = openai_server.make(int([*ports, *re.findall(r"--port (\d+)", command)][0]), *faults)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        (container.ended if "stubborn" in faults else container.asked).wait(120)
        server.shutdown()
        server.server_close()
        return 137 if "stubborn" in faults else 0

    def containers(self) -> list[FakeContainer]:
        """Every container that was made here or on the peer."""
        return [*self.docker.containers, *self.peer.containers]

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
        """Containers that were not removed."""
        return [*self.docker.left(), *self.peer.left()]


def is_server(container: FakeContainer) -> bool:
    """Whether a container serves, and is neither a probe nor a program of the host."""
    return not {"python3", "/opt/builder-program"} & set(container.words[:1])


def by_id(report: Report) -> dict[str, tuple[str, str]]:
    return {result.id: (result.status, result.message) for result in report.results}


def served() -> Any:
    from builder.serve.spec import container

    return container(PROJECT.recipe("nemotron-omni"), PROJECT.base("hermetic-0.20"), NAME)
