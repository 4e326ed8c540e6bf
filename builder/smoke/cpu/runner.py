"""The interface of runners (Runner, Command), running a command with a timeout, and whether qemu is registered."""

from __future__ import annotations

import platform
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, Protocol

TAIL = 100_000
"""Bytes of a command's output that are kept."""

_LINE = 1 << 19
"""Bytes of a line; a check's output of 50,000 bytes takes 300,000 when it is escaped."""
_LAST_WORDS = 5.0
"""Seconds that standard error may take to end after the process."""
_QUEUED = 100
"""Lines between the command and its reader; a command that prints more waits."""

BINFMT = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")


@dataclass(frozen=True)
class Command:
    """A command. argv[0] is looked up in the image's PATH. env: added to the image's. user: "UID" or "UID:GID".

    apart: standard error is a pipe of its own; default: the pipe of standard output.
    """

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    apart: bool = False


@dataclass(frozen=True)
class Completed:
    """A command that ended. code: the exit status; None after a timeout. seconds: wall time. errors: see Command."""

    code: int | None
    output: str
    seconds: float
    errors: str = ""


class Tail:
    """The last lines of an output, at most TAIL bytes and one line."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._size = 0

    def add(self, line: bytes) -> None:
        """Add a line, drop the first ones."""
        self._lines.append(line)
        self._size += len(line)
        while self._size - len(self._lines[0]) > TAIL:
            self._size -= len(self._lines.popleft())

    def text(self) -> str:
        """The lines as text."""
        return b"".join(self._lines).decode(errors="replace")[-TAIL:]


class Process(Protocol):
    """A command that runs. stdout: the pipe of its output. stderr: that of standard error, when it is apart."""

    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

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
        """Start a command. Killing the process kills its children."""

    def note(self) -> str:
        """How commands run, for the report."""

    def close(self) -> None:
        """Release the runner's resources."""


def registered() -> bool:
    """Whether the kernel starts qemu for arm64 programs, also in a container (flag F of binfmt_misc)."""
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
    output, errors = Tail(), Tail()
    process = runner.start(command)
    # The image's code gets pipes, no file of this machine, which it could fill.
    reader = threading.Thread(target=_drain, args=(process.stderr, errors.add), daemon=True)
    reader.start()
    code = follow(process, output.add, lambda: start + timeout)
    reader.join(_LAST_WORDS)
    return Completed(code, output.text(), round(time.monotonic() - start, 3), errors.text())


def _drain(pipe: IO[bytes] | None, line: Callable[[bytes], object]) -> None:
    if pipe is not None:
        with pipe:
            for text in iter(lambda: pipe.readline(_LINE), b""):
                line(text)


def follow(process: Process, line: Callable[[bytes], object], deadline: Callable[[], float]) -> int | None:
    """Pass each line of output to `line` until the process ends; returns the exit status.

    At the deadline (monotonic time) it kills the process and returns None.
    """
    lines: queue.Queue[bytes | None] = queue.Queue(_QUEUED)
    ended = threading.Event()
    assert process.stdout is not None
    threading.Thread(target=_read, args=(process.stdout, lines, ended), daemon=True).start()
    try:
        while True:
            # Not the queue's own time limit alone: a queue that a command keeps full is never empty.
            left = deadline() - time.monotonic()
            if left <= 0:
                return None
            try:
                text = lines.get(timeout=left)
            except queue.Empty:
                return None
            if text is None:
                return process.wait()
            line(text)
    finally:
        ended.set()
        if process.poll() is None:
            process.kill()
            process.wait()


def _read(pipe: IO[bytes], lines: queue.Queue[bytes | None], ended: threading.Event) -> None:
    """Put lines into a queue, and None at the end of the output, until `ended` is set."""
    with pipe:
        for text in chain(iter(lambda: pipe.readline(_LINE), b""), [None]):
            while not ended.is_set():
                try:
                    lines.put(text, timeout=0.1)
                    break
                except queue.Full:
                    continue
