"""Ctrl-C, SIGTERM and SIGHUP end the main thread within a second, wherever Python would lose or delay them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.project import ROOT

START = "import os, signal, threading, time\nfrom builder.__main__ import handle_signals\nhandle_signals()\n"
IN_A_FINALIZER = """
class Finalizer:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        time.sleep(0.1)
Finalizer()
time.sleep(60)
"""
BEFORE_A_LOCK = """
worker = threading.Thread(target=time.sleep, args=(60,), daemon=True)
worker.start()
threading.Timer(0.2, lambda: signal.pthread_kill(worker.ident, signal.{name})).start()
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("program", [IN_A_FINALIZER, BEFORE_A_LOCK], ids=["in a finalizer", "before a lock"])
def test_no_interruption_is_lost(program: str, name: str) -> None:
    start = time.monotonic()
    text = START + program.format(name=name)
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False, timeout=50
    )
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert time.monotonic() - start < 30


WITH_AN_ENGINE = """
from builder.engine.process import run
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGHUP)).start()
run(["sh", "-c", "echo $$; exec sleep 60"], log=lambda line: print(line, flush=True))
"""


def test_no_engine_outlives_the_terminal() -> None:
    """An engine is in a session of its own, to which the kernel sends no SIGHUP."""
    done = subprocess.run(
        [sys.executable, "-c", START + WITH_AN_ENGINE], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert not Path(f"/proc/{int(done.stdout)}").exists()


def test_nohup_is_respected() -> None:
    text = f"import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n{START}os.kill(os.getpid(), signal.SIGHUP)"
    subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=True)
