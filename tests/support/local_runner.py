"""Runs checks of the cpu tier on this machine, without a sandbox."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from builder.model.check import Check
from builder.smoke.check import CheckNotRun
from builder.smoke.cpu.run import run_cpu
from builder.smoke.cpu.runner import Command
from builder.smoke.report import Report
from tests.support.images import layout


class LocalRunner:
    """Runs commands on this machine, and records them in `started`."""

    name = "local"

    def __init__(self) -> None:
        self.started: list[Command] = []

    def start(self, command: Command) -> subprocess.Popen[bytes]:
        if command.user == "4711":
            raise CheckNotRun("no such user here")
        self.started.append(command)
        argv = [sys.executable if command.argv[0] == "python3" else command.argv[0], *command.argv[1:]]
        env = {**os.environ, **command.env}
        errors = subprocess.PIPE if command.apart else subprocess.STDOUT
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=errors, env=env)

    def note(self) -> str:
        return "run here"

    def close(self) -> None:
        pass


def check(name: str, kind: str, **args: Any) -> Check:
    return Check(id=name, tier="cpu", kind=kind, args=args)


def go(where: Path, *checks: Check, runner: LocalRunner | None = None, **more: Any) -> Report:
    return run_cpu(
        layout(where / "image", [{"a": b""}]), None, checks, folder=where, runner=runner or LocalRunner(), **more
    )
