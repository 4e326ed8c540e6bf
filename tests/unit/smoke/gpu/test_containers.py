"""The gpu tier's containers: their programs, and that all are removed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from fnmatch import fnmatch
from pathlib import Path

import pytest

from builder.smoke.check import CheckFailed
from builder.smoke.gpu import probe as gpu_probe
from builder.smoke.gpu.docker import CompletedContainer, Docker
from builder.smoke.report import Report
from tests.support.gpu_machine import Machine, by_id, served
from tests.support.project import ROOT


class TestInterruption:
    """Ctrl-C and SIGTERM in the middle of a probe and of serving."""

    PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from builder.__main__ import handle_signals
from tests.support.gpu_machine import TWO_NODES, Machine
from fnmatch import fnmatch
from pathlib import Path
machine = Machine.__new__(Machine)
machine.home, machine.loads, machine.probes = Path({home!r}), 0, {probes!r}
handle_signals()
machine.run(checks=[TWO_NODES], peer="192.168.100.11")
"""

    @pytest.mark.parametrize(
        ("hangs", "sent"),
        [("device", signal.SIGINT), ("allreduce RANK=1", signal.SIGINT), ("", signal.SIGTERM), ("", signal.SIGINT)],
    )
    def test_removes_the_containers(self, machine: Machine, hangs: str, sent: signal.Signals) -> None:
        machine.write("server", "unhealthy")
        known = machine.probes if not hangs else {**machine.probes, hangs: "hang"}
        text = self.PROGRAM.format(root=str(ROOT), home=str(machine.home), probes=known)
        process = subprocess.Popen([sys.executable, "-c", text], stderr=subprocess.DEVNULL)
        named = {"device": "*-device-*", "": "builder-test-nemotron-omni-????????"}.get(hangs, "*-allreduce-1-*")
        end = time.monotonic() + 120
        while time.monotonic() < end:
            if any(fnmatch(each.name, named) and each.started and not each.removed for each in machine.containers()):
                break
            time.sleep(0.02)
        else:
            process.kill()
            pytest.fail("no container was started")
        process.send_signal(sent)
        assert process.wait(timeout=120) != 0
        assert not machine.left()


def test_probes_run_without_builder(tmp_path: Path) -> None:
    """The command of a probe's container, run by this interpreter: it unpacks and runs what it carries."""
    container = gpu_probe.probe_container(served(), "marlin", '{"what": "moe"}')
    assert container.entrypoint == "python3"
    command = [sys.executable, "-s", *container.command]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    # This machine has no torch, an image has: what is shown is that the probe itself was started and reports.
    with pytest.raises(CheckFailed, match="No module named 'torch'"):
        gpu_probe.read(CompletedContainer(done.returncode, done.stdout, done.stderr), 60)


def test_a_container_that_does_not_end_is_killed_and_removed(machine: Machine) -> None:
    machine.write("probes.json", {"device": "hang"})
    begin = time.monotonic()
    with pytest.raises(CheckFailed, match=r"did not end within 0\.5 s"):
        gpu_probe.ask(Docker(), gpu_probe.probe_container(served(), "device"), 0.5)
    assert time.monotonic() - begin < 10
    assert not machine.left()


def test_tests_run_in_a_thread_as_well(machine: Machine) -> None:
    """Signals can be caught in the main thread only; in other threads the tier runs without."""
    reports: list[Report] = []
    machine.write("server", "does not start")
    thread = threading.Thread(target=lambda: reports.append(machine.run()))
    thread.start()
    thread.join(60)
    assert by_id(reports[0])["device"][0] == "pass"
