"""Counts what a command does, in a process of its own: what it opens, starts, connects to, hashes and imports.

The counts depend on no machine. `python -m tests.support.counted FILE WORDS...` runs the command and writes them.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.cli import Cli

_STARTS = (
    "subprocess.Popen",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "pty.spawn",
)


@dataclass
class Counted:
    """How a command ended, and what it did. read: files. started: processes. connected: addresses. hashed: bytes."""

    code: int = 0
    out: str = ""
    read: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    connected: list[str] = field(default_factory=list)
    hashed: int = 0
    modules: list[str] = field(default_factory=list)

    def below(self, folder: Path) -> Counter[str]:
        """How often each file of a folder was opened to be read, by its path there."""
        paths = (Path(path) for path in self.read)
        return Counter(str(path.relative_to(folder)) for path in paths if path.is_relative_to(folder))

    def _watch(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path = str(Path.cwd() / os.fsdecode(arguments[0]))
            (self.written if arguments[2] & (os.O_WRONLY | os.O_RDWR) else self.read).append(path)
        elif event.startswith(_STARTS):
            self.started.append(f"{event} {arguments}")
        elif event == "socket.connect":
            self.connected.append(str(arguments[1]))


def counted(cli: Cli, *words: str, **more: str) -> Counted:
    """Run `builder` with the project of `cli` to its end. Keywords are further variables."""
    cli.write()
    file = cli.folder / "counted.json"
    command = [sys.executable, "-m", "tests.support.counted", str(file), *words]
    environ = cli.environment(more)
    done = subprocess.run(command, env=environ, cwd=cli.folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return Counted(**{**json.loads(file.read_text()), "out": done.stdout})


def _count_hashed(counts: Counted) -> None:
    real = hashlib.sha256

    class Hash:
        def __init__(self, data: bytes = b"", **options: Any) -> None:
            self._hash = real(**options)
            self.update(data)

        def update(self, data: Any) -> None:
            counts.hashed += memoryview(data).nbytes
            self._hash.update(data)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._hash, name)

    hashlib.sha256 = Hash  # type: ignore[assignment, misc]


def main(file: str, *words: str) -> None:
    """Run a command in this process and write what it did."""
    counts = Counted()
    _count_hashed(counts)
    sys.addaudithook(counts._watch)
    from builder.__main__ import run_and_report

    counts.code = run_and_report(words)
    counts.modules = sorted(sys.modules)
    Path(file).write_text(json.dumps(asdict(counts)))


if __name__ == "__main__":
    main(*sys.argv[1:])
