"""A checkout with the scripts of the workflows and a fake `builder`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from builder.digest import Digest
from tests.support.project import ROOT, write_files

DIGEST = Digest("sha256:" + "d" * 64)
# The modules of the real `builder`, beside a fake command.
MODULES = f"""
__version__ = "0"
__path__ += [{str(ROOT / "builder")!r}]
"""
# A `builder` that logs its arguments and answers from ANSWERS, by the whole command or its name.
FAKE = """
import json, os, sys
from pathlib import Path
with open(os.environ["LOG"], "a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
answers = json.loads(os.environ["ANSWERS"])
answer = answers.get(" ".join(sys.argv[1:]), answers.get(sys.argv[1], {}))
for name, content in answer.get("files", {}).items():
    Path(os.environ["BUILDER_PROJECT"], name).write_text(content)
print(answer.get("out", ""))
sys.exit(answer.get("code", 0))
"""


class Checkout:
    """A copy of the scripts beside a fake `builder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.output = folder / "output"
        shutil.copytree(ROOT / "scripts/ci", folder / "scripts/ci", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("lib.sh", "test"):
            shutil.copy(ROOT / "scripts" / name, folder / "scripts" / name)
        write_files(folder, {"builder/__init__.py": MODULES, "builder/__main__.py": FAKE})

    def run(
        self, *command: str, answers: Mapping[str, Any] | None = None, **more: str
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "BUILDER_STORE": str(self.folder / "store"),
            "BUILDER_PYTHON": sys.executable,
            "LOG": str(self.log),
            "ANSWERS": json.dumps(answers or {}),
            "GITHUB_OUTPUT": str(self.output),
            **more,
        }
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=60
        )

    def program(self, name: str, text: str = "") -> None:
        """A program on the path that logs its arguments."""
        path = self.folder / "bin" / name
        write_files(self.folder, {f"bin/{name}": f'#!/bin/sh\necho "{name} $*" >>"$LOG"\n{text}\n'})
        path.chmod(0o755)

    def logged(self) -> list[str]:
        return self.log.read_text("utf-8").splitlines() if self.log.exists() else []

    def outputs(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.output.read_text("utf-8").splitlines())


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


PLAN = {"base": {"name": "tiny"}, "layers": []}


def answers(**more: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "plan": {"out": json.dumps(PLAN)},
        "build": {"out": DIGEST},
        "test": {"out": "all is well"},
        "push": {"out": f"ghcr.io/someone/images/tiny@{DIGEST}"},
        **more,
    }
