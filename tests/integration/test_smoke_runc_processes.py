"""What ends a command of an image: a time limit, a signal, a limit of processes and of output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from builder.smoke.cpu import sandbox
from builder.smoke.cpu.runc import RuncRunner
from builder.smoke.cpu.runner import TAIL, Command, run
from tests.support.images import layout
from tests.support.programs import own_programs


def test_another_user_does_not_get_more_processes(here: RuncRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts processes by user."""
    done = run(here, Command(["perl", "-e", '$( = 5; $) = "5 5"; $< = 5; $> = 5; print "now $<\n"']), 30)
    assert done.output == "now 0\n"


def test_a_command_cannot_start_processes_without_end(here: RuncRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0 and not here.mapped:
        pytest.skip("the kernel does not limit processes of the host's root")
    monkeypatch.setattr(sandbox, "_TASKS", 64)
    done = run(here, Command(["perl", "-e", "for (1..999) { $p = fork; exit unless defined $p; $p or sleep 9 }"]), 30)
    assert done.code is not None, "999 processes were started"


def test_a_command_that_prints_without_end(here: RuncRunner) -> None:
    done = run(here, Command(["sh", "-c", "while :; do echo 0123456789; done"]), 3)
    assert done.code is None
    assert 0 < len(done.output) <= TAIL


def command_line(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_timeout_kills_every_process(here: RuncRunner) -> None:
    start = time.monotonic()
    done = run(here, Command(["sh", "-c", "sleep 61.7 & sleep 61.7"]), 1)
    assert done.code is None
    assert time.monotonic() - start < 10
    for _ in range(50):
        if not any(b"61.7" in line for line in map(command_line, Path("/proc").glob("[0-9]*/cmdline"))):
            return
        time.sleep(0.1)
    raise AssertionError("a process outlived its namespace")


RUN = """
import sys
from pathlib import Path
from builder.__main__ import handle_signals
from builder.model.check import Check
from builder.smoke.cpu import runc
from builder.smoke.cpu.run import run_cpu
handle_signals()
runc.native = lambda: True
check = Check(id="sleep", tier="cpu", kind="command", args={"argv": ["sh", "-c", "sleep 62.8 & sleep 62.8"]})
print(run_cpu(Path(sys.argv[1]), None, [check], folder=Path(sys.argv[2]), only="runc").results[0].message)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_a_command_and_all_its_processes(tmp_path: Path, number: int) -> None:
    def sleeping() -> bool:
        return any(b"62.8" in line for line in map(command_line, Path("/proc").glob("[0-9]*/cmdline")))

    image = layout(tmp_path / "image", [own_programs()], Env=["PATH=/usr/bin"])
    command = [sys.executable, "-c", RUN, str(image), str(tmp_path / "work")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(600):
        if process.poll() is not None:
            pytest.skip(process.communicate()[0])
        # The text of RUN is in a command line as well.
        if b"sleep\x0062.8\0" in map(command_line, Path("/proc").glob("[0-9]*/cmdline")):
            break
        time.sleep(0.1)
    start = time.monotonic()
    process.send_signal(number)
    process.communicate(timeout=60)
    assert time.monotonic() - start < 6
    for _ in range(20):
        if not sleeping():
            return
        time.sleep(0.1)
    raise AssertionError("a process outlived the command")
