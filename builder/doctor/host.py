"""What checks may ask a machine: run a command, read a file, look at a disk. Nothing is changed."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Outcome:
    """What a command gave: exit code and standard output; None when it is not there."""

    code: int
    text: str


class Host(Protocol):
    """A machine."""

    def run(self, *words: str) -> Outcome | None: ...

    def read(self, path: str) -> str | None: ...

    def glob(self, pattern: str) -> tuple[str, ...]: ...

    def free_disk(self, path: str) -> int | None: ...

    def env(self, name: str) -> str | None: ...


class ThisHost:
    """The machine this runs on."""

    def run(self, *words: str) -> Outcome | None:
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return Outcome(done.returncode, done.stdout + (done.stderr if done.returncode else ""))

    def read(self, path: str) -> str | None:
        try:
            return Path(path).read_text("utf-8", errors="replace")
        except OSError:
            return None

    def glob(self, pattern: str) -> tuple[str, ...]:
        return tuple(sorted(str(path) for path in Path("/").glob(pattern.lstrip("/"))))

    def free_disk(self, path: str) -> int | None:
        try:
            return shutil.disk_usage(path).free
        except OSError:
            return None

    def env(self, name: str) -> str | None:
        return os.environ.get(name)
