"""The interface of runners (Runner, Command), running a command with a timeout, and whether qemu is registered."""

from __future__ import annotations

import platform
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

QEMU_NAMES = ("qemu-aarch64-static", "qemu-aarch64")
BINFMT = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")


@dataclass(frozen=True)
class Command:
    """A command. argv[0] is looked up in the image's PATH. env: added to the image's. user: "UID" or "UID:GID".

    errors: the file for standard error; default: the pipe of standard output.
    """

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    errors: IO[bytes] | None = None


@dataclass(frozen=True)
class Completed:
    """A command that ended. code: the exit status; None after a timeout. seconds: wall time."""

    code: int | None
    output: str
    seconds: float


class Process(Protocol):
    """A command that runs. stdout: the pipe of its output."""

    stdout: IO[bytes] | None

    def poll(self) -> int | None:
        """The exit status, once it ended."""

    def wait(self) -> int:
        """Wait for its end; returns the exit status."""

    def kill(self) -> None:
        """Kill it and its child processes."""


class Runner(Protocol):
    """Runs commands of one image, each in a fresh copy of its files, without network."""

    name: str

    def start(self, command: Command) -> Process:
        """Start a command; its standard output and error are one pipe. Killing the process kills its children."""

    def note(self) -> str:
        """How commands run, for the report."""

    def close(self) -> None:
        """Release the runner's resources."""


def registered() -> bool:
    """Whether the kernel starts qemu for arm64 programs, also in a chroot (flag F of binfmt_misc)."""
    try:
        status = (BINFMT.parent / "status").read_text()
        entry = BINFMT.read_text().splitlines()
    except OSError:
        return False
    flags = next((line.partition(":")[2] for line in entry if line.startswith("flags:")), "")
    return status.strip() == "enabled" and entry[0] == "enabled" and "F" in flags


def native() -> bool:
    """Whether this machine's CPU runs arm64 code."""
    return platform.machine() in ("aarch64", "arm64")


def run(runner: Runner, command: Command, timeout: float) -> Completed:
    """Run a command to its end, or kill it after `timeout` seconds."""
    start = time.monotonic()
    lines: list[bytes] = []
    code = follow(runner.start(command), lines.append, lambda: start + timeout)
    output = b"".join(lines).decode(errors="replace")
    return Completed(code, output[-100_000:], round(time.monotonic() - start, 3))


def follow(process: Process, line: Callable[[bytes], object], deadline: Callable[[], float]) -> int | None:
    """Pass each line of output to `line` until the process ends; returns the exit status.

    At the deadline (monotonic time) it kills the process and returns None.
    """
    lines: queue.Queue[bytes | None] = queue.Queue()
    assert process.stdout is not None
    threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
    try:
        while True:
            try:
                text = lines.get(timeout=max(0.0, deadline() - time.monotonic()))
            except queue.Empty:
                return None
            if text is None:
                return process.wait()
            line(text)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _read(pipe: IO[bytes], lines: queue.Queue[bytes | None]) -> None:
    with pipe:
        for text in iter(lambda: pipe.readline(1 << 16), b""):
            lines.put(text)
    lines.put(None)
