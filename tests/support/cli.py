"""The command line in tests: `builder` run as a process, on a machine with neither engines nor settings."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.project import ROOT, Sample


@dataclass
class Said:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


@dataclass
class Cli:
    """Runs `builder` as a process of its own, on a machine with neither engines nor settings."""

    folder: Path
    small: Sample
    environ: dict[str, str] = field(default_factory=dict)
    keep: bool = False
    """Leave the project as a command has changed it."""

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """What the process sees."""
        fixed = {
            "PATH": str(self.folder / "bin"),
            "HOME": str(self.folder / "home"),
            "PYTHONPATH": str(ROOT),
            "BUILDER_PROJECT": str(self.folder / "project"),
            "BUILDER_STORE": str(self.folder / "store"),
            "LC_ALL": "C.UTF-8",
        }
        return {**fixed, **self.environ, **more}

    def write(self) -> None:
        """Write the small project as it is now."""
        (self.folder / "bin").mkdir(exist_ok=True)
        (self.folder / "home").mkdir(exist_ok=True)
        if self.keep and (self.folder / "project").exists():
            return
        self.small.write(self.folder / "project")

    def __call__(self, *words: str, **more: str) -> Said:
        """Run to the end. Keywords are further variables. Whatever happens, no traceback is shown."""
        self.write()
        command = [sys.executable, "-m", "builder", *words]
        environ = self.environment(more)
        done = subprocess.run(command, capture_output=True, env=environ, cwd=self.folder, timeout=60, check=False)
        said = Said(done.returncode, done.stdout.decode(), done.stderr.decode())
        assert "Traceback" not in said.out + said.err, said.err
        assert said.code != 1, said.err
        return said

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start and do not wait."""
        self.write()
        command = [sys.executable, "-m", "builder", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=self.environment({}), cwd=self.folder, text=True, **pipes)  # type: ignore[call-overload, no-any-return]
