"""Programs of the image that take minutes under qemu: the cpu tier, and inside.py."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.plan.resolve import resolve
from builder.project import Project
from builder.smoke.cpu.runc import RuncRunner
from builder.smoke.cpu.runner import Command, run
from builder.smoke.plan_checks import checks_of
from tests.e2e.building import WHAT, Build, builder
from tests.support.nightly import NIGHTLY

STRANGER = "54321:54321"
INSIDE = Path(__file__).with_name("inside.py").read_text()
SLOW_CHECKS = {"serve-command", "starts-without-gpu", *(() if NIGHTLY else ("vllm-import", "non-root"))}
"""Each loads vLLM or all of its server, or torch a second time (`non-root`): many minutes where arm64 code is emulated.
All run on the arm64 runners; what they find is in tests/integration/test_smoke_running.py."""


@dataclass(frozen=True)
class Emulated:
    """The command `builder test --tier cpu`; at night, what inside.py found in the sandbox as the user STRANGER."""

    tier: subprocess.CompletedProcess[str]
    found: dict[str, Any]


def run_emulated(first: Build, unpacked: Future[None], sandbox: RuncRunner | None) -> Emulated:
    """Run both, one after the other: an import compiles Python's bytecode, which the next one finds."""
    unpacked.result()
    return Emulated(cpu_tier(first), inside_sandbox(sandbox, "triton", "flashinfer", "audio") if sandbox else {})


def cpu_tier(first: Build) -> subprocess.CompletedProcess[str]:
    """`builder test` without a daemon: the image runs in a sandbox."""
    project = Project()
    plan = resolve(project, project.recipe("nemotron-omni"), base="hermetic")
    names = {check.id for check in checks_of(plan) if check.tier == "cpu"}
    assert names > SLOW_CHECKS
    only = [word for name in sorted(names - SLOW_CHECKS) for word in ("--only", name)]
    alone = {"DOCKER_HOST": f"unix://{first.store}/none"}
    return builder("test", *WHAT, "--tier", "cpu", "--require", "--json", *only, store=first.store, env=alone)


def inside_sandbox(sandbox: RuncRunner, *parts: str) -> dict[str, Any]:
    """The findings of some parts of inside.py in the sandbox."""
    command = Command(["python3", "-c", INSIDE, *parts], user=STRANGER)
    return findings(run(sandbox, command, timeout=2400).output)


def inside_docker(image: str, *parts: str) -> dict[str, Any]:
    """The findings of some parts of inside.py in a container."""
    start = ["docker", "run", "--rm", "--platform", "linux/arm64", "--network=none", "--user", STRANGER]
    argv = [*start, "--entrypoint", "python3", image, "-c", INSIDE, *parts]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=2400)
    return findings(done.stdout + done.stderr)


def findings(output: str) -> dict[str, Any]:
    """The object that inside.py printed."""
    line = next((line for line in output.splitlines() if line.startswith("RESULT ")), None)
    assert line, output[-3000:]
    found: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
    return found
