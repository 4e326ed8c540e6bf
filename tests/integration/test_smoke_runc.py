"""Images run in a sandbox: with this machine's own programs, and with an arm64 program under qemu."""

from __future__ import annotations

import copy
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from builder.errors import EngineError
from builder.model.check import Check
from builder.smoke.check import CheckNotRun
from builder.smoke.cpu import bytecode, runc, sandbox
from builder.smoke.cpu.bytecode import BytecodeFolder
from builder.smoke.cpu.run import run_cpu
from builder.smoke.cpu.runc import RuncRunner
from builder.smoke.cpu.runner import Command, native, registered, run
from builder.smoke.cpu.sandbox import FIRST_ID, IDS
from builder.smoke.image.opened import open_image
from builder.smoke.image.unpack import unpack
from builder.smoke.structure_file import structure_checks
from tests.support.arm64 import arm64_program
from tests.support.errors import fails
from tests.support.images import hard, layout, link, program
from tests.support.programs import own_programs
from tests.support.sandboxed import say


@pytest.mark.parametrize("folder", ["/proc/self/fd/7", "//proc/self", "/usr/../proc/self/fd/8", "/usr/work"])
def test_a_working_directory_in_proc_is_not_entered(here: RuncRunner, folder: str) -> None:
    settings = {**here.image.config["config"], "WorkingDir": folder}
    runner = copy.copy(here)
    runner.image = replace(here.image, config={**here.image.config, "config": settings})
    with pytest.raises(CheckNotRun, match="the working directory"):
        runner.start(Command(["true"]))


def test_the_environment_is_that_of_the_image(here: RuncRunner) -> None:
    assert {"PATH=/usr/bin", "HOME=/root", "A=b c"} <= set(say(here, "env").splitlines())
    assert say(here, "hostname") == "smoke"
    assert (
        {"dev", "proc", "usr"}
        <= set(say(here, "ls /").split())
        <= {"dev", "etc", "lib", "lib64", "proc", "sys", "tmp", "usr"}
    )
    assert "/home" not in say(here, "cat /proc/self/mounts")
    assert say(here, "cat /proc/net/dev").count(":") == 1


def test_files_are_fresh_each_time(here: RuncRunner) -> None:
    assert say(here, "touch /usr/x /tmp/y /dev/shm/z; ls /usr/x") == "/usr/x"
    assert say(here, "ls /tmp /dev/shm | cat") == "/dev/shm:\n\n/tmp:"
    assert run(here, Command(["ls", "/usr/x"]), 30).code == 2


def test_devices_and_processes(here: RuncRunner) -> None:
    assert say(here, "echo x > /dev/null; cat /dev/fd/3 3< /etc/hosts") == "127.0.0.1 localhost\n::1 localhost"
    # The command is not the first process: that one would ignore signals.
    assert say(here, "echo $$") != "1"
    assert run(here, Command(["sh", "-c", "kill -9 $$"]), 30).code == 137


def test_users(here: RuncRunner) -> None:
    if not here.mapped:
        with pytest.raises(CheckNotRun, match="only root"):
            here.start(Command(["id"], user="1000"))
        return
    assert say(here, "id -u; id -g; id -G; echo $HOME", user="1000:1001").split() == ["1000", "1001", "1001", "/"]
    assert say(here, "id -u; id -g; echo $HOME", user="u").split() == ["1234", "5678", "/srv/u"]
    assert say(here, "id -u; id -g", user="99").split() == ["99", "0"]
    assert run(here, Command(["touch", "/usr/x"], user="1000"), 30).code == 1
    for user in ("somebody", "70000", "-1", "1000:70000", "9" * 5000):
        with pytest.raises(CheckNotRun, match="has no user"):
            here.start(Command(["id"], user=user))


ESCAPES = {
    # The way out of a chroot: a folder that is open, or the current one, outside of a second chroot.
    "chroot": 'mkdir "/tmp/x"; chroot("/tmp/x"); chdir("..") for 1..99; chroot("."); put("OUTSIDE/proof")',
    "folder": 'opendir(D, "/"); chroot("/tmp"); chdir(D); chdir("..") for 1..99; put(".OUTSIDE/proof")',
    "first process": 'put("/proc/1/root" . "OUTSIDE/proof")',
    "parent": 'put("/proc/" . getppid() . "/root" . "OUTSIDE/proof")',
    "kernel": 'put("/proc/sys/kernel/core_pattern"); put("/proc/sysrq-trigger"); put("/sys/kernel/uevent_helper")',
}


@pytest.mark.parametrize(
    "argv",
    [
        ["mount", "-t", "tmpfs", "none", "/tmp"],
        ["mount", "-o", "remount,rw", "/sys"],
        ["umount", "/etc/hosts"],
        ["unshare", "--user", "true"],
        ["unshare", "--mount", "true"],
        ["chroot", "/", "true"],
        ["mknod", "/tmp/disk", "b", "254", "0"],
        ["hostname", "other"],
    ],
)
def test_nothing_of_the_kernel_is_administered(here: RuncRunner, argv: list[str]) -> None:
    done = run(here, Command(argv), 30)
    assert done.code not in (0, 126, 127), done.output


def test_privileges(here: RuncRunner) -> None:
    status = dict(line.split(":", 1) for line in say(here, "cat /proc/self/status").splitlines())
    capabilities = int(status["CapBnd"], 16) | int(status["CapPrm"], 16) | int(status["CapAmb"], 16)
    administer = (12, 13, 16, 18, 19, 21, 27)  # NET_ADMIN NET_RAW SYS_MODULE SYS_CHROOT SYS_PTRACE SYS_ADMIN MKNOD
    assert not [number for number in administer if capabilities >> number & 1]
    assert status["NoNewPrivs"].strip() == "1"
    assert status["Seccomp"].strip() == "2"
    first, outside, count = map(int, say(here, "cat /proc/self/uid_map").split())
    assert first == 0
    assert (outside, count) == (FIRST_ID, IDS) if here.mapped else count == 1
    assert set(say(here, "ls /dev").split()) <= {
        *("fd", "full", "null", "ptmx", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"),
    }


def test_a_command_cannot_fill_the_disk(here: RuncRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runc, "MEMORY_FILES", 1 << 20)
    done = run(here, Command(["sh", "-c", "cat /dev/zero > /usr/zero 2>/dev/null || ls -s /usr/zero"]), 30)
    assert int(done.output.split()[0]) <= 1024


def test_all_that_a_command_writes_has_one_limit(here: RuncRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runc, "MEMORY_FILES", 1 << 20)
    monkeypatch.setattr(sandbox, "MEMORY_FILES", 1 << 20)
    places = "/usr/zero /tmp/zero /dev/shm/zero"
    sizes = say(here, f"for f in {places}; do cat /dev/zero >$f 2>/dev/null; done; ls -s {places}; :").splitlines()
    assert len(sizes) == 3 and sum(int(line.split()[0]) for line in sizes) <= 1024


@pytest.fixture
def under_qemu(here: RuncRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RuncRunner]:
    """The runner as under qemu: Python writes its bytecode to a folder of this machine."""
    monkeypatch.setattr(bytecode, "_MOST", 16 << 20)
    runner = copy.copy(here)
    runner._bytecode = BytecodeFolder(tmp_path / "bytecode")
    yield runner
    runner.close()


@pytest.mark.parametrize(
    "script",
    [
        'for (;;) { open(F, ">", $i++); print F "x" x 1_000_000 }',
        'for (;;) { open(F, ">", $i++) }',
        # So deep that a path does not reach it.
        'for (1..30) { mkdir "x" x 200; chdir "x" x 200 } sleep 30',
    ],
)
def test_bytecode_cannot_fill_the_disk(under_qemu: RuncRunner, tmp_path: Path, script: str) -> None:
    assert say(under_qemu, "echo a >/dev/bytecode/kept") == ""
    assert say(under_qemu, "cat /dev/bytecode/kept") == "a"
    done = run(under_qemu, Command(["perl", "-e", f'chdir "/dev/bytecode"; {script}']), 20)
    assert done.code == -signal.SIGKILL, done
    # It is empty for the next command, and remains so.
    assert say(under_qemu, "ls /dev/bytecode; echo a >/dev/bytecode/again") == ""
    assert [path.name for path in (tmp_path / "bytecode").iterdir()] == ["again"]


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder of the host that everybody may write to, and that the sandbox does not hide, as it hides /tmp."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        (folder / "hosts").write_text("of the host\n")
        (folder / "passwd").write_text("root:x:0:0::/:/bin/sh\n")
        folder.chmod(0o777)
        yield folder
        assert (folder / "hosts").read_text() == "of the host\n"
        assert {each.name for each in folder.iterdir()} == {"hosts", "passwd"}


@pytest.mark.parametrize("path", ["etc", "etc/hosts", "tmp", "proc", "sys", "dev", "dev/shm", "usr/bin/x"])
def test_a_link_of_an_image_leads_nowhere_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outside: Path, path: str
) -> None:
    programs = {name: member for name, member in own_programs().items() if not f"{name}/".startswith(f"{path}/")}
    target = outside / "hosts" if path == "etc/hosts" else outside
    monkeypatch.setattr(runc, "native", lambda: True)
    image = layout(tmp_path / "image", [programs, {path: link(str(target))}], Env=["PATH=/usr/bin"])
    try:
        runner = RuncRunner(open_image(image), tmp_path / "work")
    except CheckNotRun as reason:
        assert str(reason) == f"/{path} of the image is not a folder"
    else:
        run(runner, Command(["sh", "-c", "echo changed > /etc/hosts; touch /tmp/new /dev/new /dev/shm/new"]), 30)


@pytest.mark.parametrize("way", ESCAPES)
def test_no_way_leads_out(here: RuncRunner, outside: Path, way: str) -> None:
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    put = 'sub put { open(F, ">", $_[0]) and print F "escaped" and print "written\\n"; close F } '
    done = run(here, Command(["perl", "-e", put + ESCAPES[way].replace("OUTSIDE", str(outside))]), 30)
    assert "written" not in done.output
    assert Path("/proc/sys/kernel/core_pattern").read_text() == pattern


def test_commands_of_container_structure_test_run(here: RuncRunner, tmp_path: Path) -> None:
    test = tmp_path / "structure.yaml"
    test.write_text(
        """
schemaVersion: 2.0.0
globalEnvVars: [{key: WORD, value: "$A!"}]
commandTests:
  - {name: apart, command: sh, args: [-c, "echo $WORD; echo no >&2; exit 3"], exitCode: 3,
     expectedOutput: ["^b c!"], excludedOutput: ["no"], expectedError: ["^no"]}
  - {name: set up, command: cat, setup: [[sh, -c, "echo made > /tmp/file; echo noise"]], args: [/tmp/file],
     expectedOutput: ['\\Amade\\s\\z'], teardown: [[touch, /tmp/gone]]}
  - {name: setup fails, command: ls, setup: [[ls, /nowhere]]}
  - {name: differs, command: cat, args: [/nowhere]}
"""
    )
    checks = structure_checks(test, here.image.env)
    report = run_cpu(here.image.layers[0].path.parents[2], here.image.digest, checks, folder=tmp_path, runner=here)
    found = {result.id: (result.status, result.message) for result in report.results}
    assert found["structure-apart"] == ("pass", "exit status 3"), found
    assert found["structure-set-up"] == ("pass", "exit status 0"), found
    assert found["structure-setup-fails"] == ("fail", "a command of its setup failed")
    assert found["structure-differs"][0] == "fail" and "exit status 1, not 0" in found["structure-differs"][1]


def test_an_image_larger_than_the_disk_is_refused_before_anything_is_written(small_disk: Path, tmp_path: Path) -> None:
    # It compresses to a few bytes and needs twice the free space.
    image = layout(tmp_path / "image", [{"opt/big": bytes(2_000_000), "opt/same": hard("opt/big")}])
    with fails(EngineError, "disk-space-short") as caught:
        unpack(open_image(image), small_disk)
    assert caught.value.what == "the image needs 0.00201 GB unpacked; 0.00105 GB are free"
    assert list(small_disk.iterdir()) == []
    with pytest.raises(CheckNotRun, match="0\\.00105 GB are free"):
        RuncRunner(open_image(image), small_disk)


@pytest.mark.qemu
def test_arm64_code_runs(tmp_path: Path) -> None:
    if not native() and not registered():
        pytest.skip("qemu-user-static is not installed")
    files = {
        "usr/bin/hello": program(arm64_program(b"hello from arm64\n", 0)),
        "usr/bin/no": program(arm64_program(b"no\n", 3)),
    }
    image = layout(tmp_path / "image", [files], Env=["PATH=/usr/bin"])
    checks = [
        Check(id="hello", tier="cpu", kind="command", args={"argv": ["hello"], "output": "hello from arm64"}),
        Check(id="no", tier="cpu", kind="command", args={"argv": ["no"]}),
        Check(id="gone", tier="cpu", kind="command", args={"argv": ["gone"]}),
    ]
    report = run_cpu(image, None, checks, folder=tmp_path / "work", only="runc")
    if report.count("not-run") == 3:
        pytest.skip(report.results[0].message)
    found = [(result.id, result.status) for result in report.results]
    assert found == [("hello", "pass"), ("no", "fail"), ("gone", "fail"), ("log", "pass")]
    assert report.results[1].message == "exit status 3: no"
    assert "exit status 127" in report.results[2].message


def test_standard_error_is_no_file_of_this_machine(here: RuncRunner, tmp_path: Path) -> None:
    """A command could fill the disk with it."""
    argv = ["perl", "-e", 'print readlink "/proc/self/fd/2"; print STDERR "x" x 100_000_000, "\n", "end"']
    kind = {"argv": argv, "expected_output": ["^pipe:"], "expected_error": ["\nend\\z"]}
    check = Check(id="errors", tier="cpu", kind="structure-command", args=kind)
    layout_of_it = here.image.layers[0].path.parents[2]
    report = run_cpu(layout_of_it, here.image.digest, [check], folder=tmp_path, runner=here)
    assert (report.results[0].status, report.results[0].message) == ("pass", "exit status 0")
