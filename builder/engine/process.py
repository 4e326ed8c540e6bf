"""Processes of an engine: start, output line by line, cancellation, and the result of short commands."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import IO

from builder.engine.interface import Log
from builder.errors import Cancelled

PATIENCE = 0.7
"""Seconds that a process has to end after SIGTERM: `builder` itself ends within two."""
_LONGEST = 1 << 20
"""Bytes that a short process may print."""
_LONGEST_LINE = 1 << 16
"""Bytes; a longer line of output is read as several."""


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
    patience: float = PATIENCE,
) -> Outcome:
    """Run a process to its end. Output goes to `log` line by line; with `stdout`, only standard error does.

    An exception here, such as KeyboardInterrupt, or a set `cancel` stops the process and its children and waits for
    them: `patience` seconds before SIGKILL. Raises Cancelled when `cancel` is set.
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
        stop(process, patience)
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
            if len(pending) > _LONGEST_LINE:
                complete, pending = [*complete, pending], b""
            yield from filter(None, (raw.decode("utf-8", "replace").rstrip() for raw in complete))
    if pending:
        yield pending.decode("utf-8", "replace").rstrip()


def stop(process: subprocess.Popen[bytes], patience: float = PATIENCE) -> None:
    """End a process and its children: with SIGTERM, and with SIGKILL after `patience` seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(patience)
            return
        except subprocess.TimeoutExpired:
            continue


def foreground(argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> int:
    """Run a program with this process's input, output and terminal; returns its exit status. env: all its variables.

    An exception here, such as KeyboardInterrupt, sends it SIGTERM, which docker passes on to its container.
    """
    process = subprocess.Popen(argv, env=env)
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        raise
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Captured:
    """The exit status of a process, its standard output and its standard error."""

    status: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """Its standard output."""
        return self.out.decode("utf-8", "replace")

    @property
    def errors(self) -> str:
        """Its standard error."""
        return self.err.decode("utf-8", "replace")


class OutputTooLongError(subprocess.SubprocessError):
    """A process has printed more than was allowed."""


def output(
    argv: Sequence[str],
    *,
    timeout: float,
    limit: int = _LONGEST,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
    cancel: Event | None = None,
    own_session: bool = True,
    memory: int | None = None,
) -> Captured:
    """Run a short process to its end, and return what it printed: `limit` bytes at most.

    timeout: in seconds. env: all of its variables; None: those of this process. own_session: its children end with it,
    but it has no terminal to ask its user. memory: bytes that it, and each of its children, may have. Returns when the
    process has ended; a child of it may keep the output open.
    Raises OSError, TimeoutExpired, OutputTooLongError, and Cancelled when `cancel` is set; the process is then ended.
    """
    end = time.monotonic() + timeout
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd=folder, start_new_session=own_session
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    printed = {process.stdout: bytearray(), process.stderr: bytearray()}
    try:
        _limit(process, memory)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(stdin)
            process.stdin.close()
        with selectors.DefaultSelector() as selector:
            for stream in printed:
                selector.register(stream, selectors.EVENT_READ, stream)
            while selector.get_map():
                ended = process.poll() is not None
                ready = selector.select(0 if ended else 0.02)
                for key, _ in ready:
                    chunk = os.read(key.fd, 1 << 16)
                    printed[key.data] += chunk
                    if not chunk:
                        selector.unregister(key.data)
                if sum(map(len, printed.values())) > limit:
                    raise OutputTooLongError(f"{argv[0]} printed more than {limit} bytes")
                if ended and not ready:
                    break
                if cancel is not None and cancel.is_set():
                    raise Cancelled
                if time.monotonic() > end:
                    raise subprocess.TimeoutExpired(argv, timeout)
        status = process.wait(max(0.0, end - time.monotonic()))
        return Captured(status, bytes(printed[process.stdout]), bytes(printed[process.stderr]))
    except BaseException:
        if own_session:
            stop(process)
        raise
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, *printed):
            with contextlib.suppress(OSError):
                stream.close()


def _limit(process: subprocess.Popen[bytes], memory: int | None) -> None:
    if memory is not None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (memory, memory))


def capture(argv: Sequence[str], *, timeout: float = 10.0) -> tuple[int, str]:
    """Exit status and output of a short command, standard error included.

    Status 127 when it does not exist, 124 when it takes too long or prints too much.
    """
    try:
        done = output(argv, timeout=timeout)
    except (FileNotFoundError, PermissionError):
        return 127, ""
    except subprocess.SubprocessError:
        return 124, ""
    return done.status, (done.text + done.errors).strip()
