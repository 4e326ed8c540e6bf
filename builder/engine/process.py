"""Processes of an engine: start, output line by line, cancellation, and the result of short commands."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import IO

from builder.engine.interface import Log
from builder.errors import Cancelled

PATIENCE = 10.0
"""Seconds that a process has to end after SIGTERM."""


@dataclass(frozen=True)
class Outcome:
    """The exit status of a process and its last lines of output."""

    status: int
    tail: tuple[str, ...]


def run(
    argv: Sequence[str],
    *,
    log: Log,
    stdout: IO[bytes] | None = None,
    env: Mapping[str, str] | None = None,
    cancel: Event | None = None,
) -> Outcome:
    """Run a process to its end. Output goes to `log` line by line; with `stdout`, only standard error does.

    An exception here, such as KeyboardInterrupt, or a set `cancel` stops the process and its children and waits for
    them. Raises Cancelled when `cancel` is set.
    """
    tail: deque[str] = deque(maxlen=30)
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=stdout if stdout is not None else subprocess.PIPE,
        stderr=subprocess.PIPE if stdout is not None else subprocess.STDOUT,
        env={**os.environ, **(env or {})},
        start_new_session=True,
    )
    stream = process.stderr if stdout is not None else process.stdout
    assert stream is not None
    try:
        for line in _lines(stream, cancel):
            tail.append(line)
            log(line)
        return Outcome(process.wait(), tuple(tail))
    except BaseException:
        stop(process)
        raise
    finally:
        stream.close()


def _lines(stream: IO[bytes], cancel: Event | None) -> Iterator[str]:
    """Lines as they are printed. `cancel` is checked several times a second, also while the process prints nothing."""
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            if cancel is not None and cancel.is_set():
                raise Cancelled
            if not selector.select(timeout=0.2):
                continue
            data = os.read(stream.fileno(), 1 << 16)
            if not data:
                break
            *complete, pending = (pending + data).split(b"\n")
            yield from filter(None, (raw.decode("utf-8", "replace").rstrip() for raw in complete))
    if pending:
        yield pending.decode("utf-8", "replace").rstrip()


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children: with SIGTERM, and with SIGKILL after PATIENCE seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(PATIENCE)
            return
        except subprocess.TimeoutExpired:
            continue


def capture(argv: Sequence[str], *, timeout: float = 10.0) -> tuple[int, str]:
    """Exit status and output of a short command; status 127 when it does not exist, 124 when it takes too long."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
    except (FileNotFoundError, PermissionError):
        return 127, ""
    except subprocess.TimeoutExpired:
        return 124, ""
    return done.returncode, done.stdout.decode("utf-8", "replace").strip()
