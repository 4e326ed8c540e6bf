"""Processes: output line by line, and no process left behind."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from builder.engine import process as processes
from builder.engine.process import OutputTooLongError, capture, foreground, output, run
from builder.errors import Cancelled
from tests.unit.engine.conftest import alive

CHILDREN = "sleep 60 & echo $!; sleep 61 & echo $!; echo $$; wait"


def sh(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def test_lines_arrive_as_they_are_written() -> None:
    seen: list[tuple[str, float]] = []
    begin = time.monotonic()
    outcome = run(
        sh("echo one; sleep 0.4; echo two >&2; exit 3"), log=lambda line: seen.append((line, time.monotonic()))
    )
    assert (outcome.status, outcome.tail) == (3, ("one", "two"))
    assert seen[0][1] - begin < 0.35 < seen[1][1] - begin


def test_odd_output_is_still_lines() -> None:
    lines: list[str] = []
    run(sh(r"printf 'a\r\n\n\nb\377c\nno end'"), log=lines.append)
    assert lines == ["a", "b\ufffdc", "no end"]


def test_megabytes_of_output_keep_a_short_tail() -> None:
    count = 0

    def log(line: str) -> None:
        nonlocal count
        count += 1

    outcome = run([sys.executable, "-c", "for n in range(100000): print('line', n)"], log=log)
    assert count == 100_000
    assert outcome.tail[-1] == "line 99999"
    assert len(outcome.tail) == 30


def test_standard_output_can_go_to_a_file(tmp_path: Path) -> None:
    lines: list[str] = []
    with (tmp_path / "out").open("wb") as file:
        run(sh("echo data; echo said >&2"), log=lines.append, stdout=file)
    assert ((tmp_path / "out").read_bytes(), lines) == (b"data\n", ["said"])


def test_environment_is_added_and_input_is_empty() -> None:
    lines: list[str] = []
    run(sh('echo "$MORE $HOME"; cat'), log=lines.append, env={"MORE": "more"})
    assert lines == [f"more {os.environ['HOME']}"]


def gone(pids: list[int]) -> bool:
    end = time.monotonic() + 5
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(alive, pids))


def test_a_cancel_ends_the_process_and_its_children_though_they_are_silent() -> None:
    cancel = threading.Event()
    pids: list[int] = []

    def log(line: str) -> None:
        pids.append(int(line))
        if len(pids) == 3:
            threading.Timer(0.1, cancel.set).start()

    begin = time.monotonic()
    with pytest.raises(Cancelled):
        run(sh(CHILDREN), log=log, cancel=cancel)
    assert time.monotonic() - begin < 3
    assert gone(pids)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupt_ends_the_process_and_its_children(error: type[BaseException]) -> None:
    pids: list[int] = []

    def log(line: str) -> None:
        pids.append(int(line))
        if len(pids) == 3:
            raise error

    with pytest.raises(error):
        run(sh(CHILDREN), log=log)
    assert gone(pids)


def test_a_process_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PATIENCE", 0.3)
    pids: list[int] = []

    def log(line: str) -> None:
        pids.append(int(line))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(sh("trap '' TERM; echo $$; while :; do sleep 1; done"), log=log)
    assert gone(pids)


def test_a_cancel_before_the_start_runs_nothing_to_the_end(tmp_path: Path) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        run(sh(f"sleep 1; touch {tmp_path}/done"), log=print, cancel=cancel)
    assert not (tmp_path / "done").exists()


def test_short_commands() -> None:
    assert capture(sh("echo out; echo err >&2; exit 4")) == (4, "out\nerr")
    assert capture(["/no/such/program"]) == (127, "")
    begin = time.monotonic()
    assert capture(sh("sleep 30"), timeout=0.2) == (124, "")
    assert time.monotonic() - begin < 5


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    longest = 0

    def log(line: str) -> None:
        nonlocal longest
        longest = max(longest, len(line))

    run(sh("head -c 50000000 /dev/zero | tr '\\0' a"), log=log)
    assert longest < 1 << 20


@pytest.mark.parametrize("stream", [1, 2])
def test_output_without_end_ends_a_short_command(stream: int) -> None:
    begin = time.monotonic()
    with pytest.raises(OutputTooLongError):
        output(sh(f"while :; do echo {'a' * 1000}; done >&{stream}"), timeout=60)
    assert capture(sh("yes")) == (124, "")
    assert time.monotonic() - begin < 10


def test_a_cancel_ends_a_short_command_and_its_children() -> None:
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    mark = f"sleep 6{random.randrange(10**6, 10**7)}"
    with pytest.raises(Cancelled):
        output(sh(f"{mark} & wait"), timeout=60, cancel=cancel)
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert [line for line in lines if mark.replace(" ", "\0").encode() in line] == []


def test_a_signal_is_passed_on_to_a_program_in_the_foreground(tmp_path: Path) -> None:
    threading.Timer(1, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        foreground(sh(f"trap 'touch {tmp_path}/told; kill $!; exit' TERM; sleep 60 & wait"))
    assert (tmp_path / "told").exists()
    assert foreground(sh("exit 3")) == 3
