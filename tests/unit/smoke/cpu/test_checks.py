"""The cpu tier over a runner that runs this machine's own Python."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import pytest

from builder.errors import InvalidError
from builder.model.check import Check
from builder.smoke.check import CheckFailed, CheckNotRun
from builder.smoke.cpu import runner as runners
from builder.smoke.cpu.execution import execution_of
from builder.smoke.cpu.run import run_cpu
from builder.smoke.cpu.select import pick_runner
from builder.smoke.report import Report, Result
from tests.support.errors import fails
from tests.support.images import layout
from tests.support.local_runner import LocalRunner, check, go


def states(report: Report) -> list[str]:
    return [result.status for result in report.results if result.kind != "log"]


def test_python_checks_share_an_interpreter_and_commands_do_not(tmp_path: Path) -> None:
    runner = LocalRunner()
    progress: list[str] = []
    report = go(
        tmp_path,
        check("one", "python", code="import os; print(os.getpid())"),
        check("two", "command", argv=["echo", "hello"], output="hello"),
        check("three", "python", code="import os; print(os.getpid())"),
        check("alone", "python", code="import os; print(os.getpid())", alone=True),
        check("other-env", "python", code="import os; print(os.environ['X'])", env={"X": "5"}, output="5"),
        runner=runner,
        progress=progress.append,
    )
    assert states(report) == ["pass"] * 5
    one, two, three, alone, *_ = report.results
    assert one.message == three.message != alone.message
    assert two.message == "hello"
    assert [result.id for result in report.results] == ["one", "two", "three", "alone", "other-env", "log"]
    assert len(runner.started) == 4
    assert report.notes == ["run here"]
    assert "three" in progress


def test_the_output_of_python_is_judged(tmp_path: Path) -> None:
    report = go(
        tmp_path,
        check("exact", "python", code="print('a\\nb')", output="a\nb"),
        check("after-a-warning", "python", code="print('no cpuinfo'); print('a\\nb')", output="a\nb"),
        check("end-of-a-line", "python", code="print('ba')", output="a"),
        check("whole", "command", argv=["printf", "no cpuinfo\\na\\n"], output="a"),
        check("differs", "python", code="print('a')", output="b"),
        check("matches", "python", code="print('version 1.2.3 of x')", matches=r"\d+\.\d+"),
        check("no-match", "python", code="print('x')", matches=r"\d"),
        check("c-output", "python", code="import os; os.system('echo from a child')", matches="from a child"),
        check("raises", "python", code="def f():\n    raise ValueError('broken')\nf()"),
        check("exits", "python", code="raise SystemExit('no')"),
        check("exits-well", "python", code="raise SystemExit(0)"),
        check(
            "source", "python", code="import inspect\ndef f():\n  return 4\nprint(inspect.getsource(f))", matches="4"
        ),
    )
    passed = [result.id for result in report.results if result.status == "pass"]
    assert passed == ["exact", "after-a-warning", "matches", "c-output", "exits-well", "source", "log"]
    messages = {result.id: result.message for result in report.results}
    assert "expected 'b'" in messages["differs"]
    assert messages["matches"] == "1.2"
    assert "ValueError: broken" in messages["raises"]
    assert "line 2, in f" in messages["raises"]
    assert messages["exits"] == "exit status 1: no"


def test_a_crash_fails_one_check_only(tmp_path: Path) -> None:
    runner = LocalRunner()
    report = go(
        tmp_path,
        check("before", "python", code="print(1)"),
        check("crash", "python", code="import os; os.abort()"),
        check("after", "python", code="print(2)"),
        runner=runner,
    )
    assert states(report) == ["pass", "fail", "pass"]
    assert "ended by itself" in report.results[1].message
    assert len(runner.started) == 2


def test_a_check_that_hangs_is_killed(tmp_path: Path) -> None:
    start = time.monotonic()
    report = go(
        tmp_path,
        check("hangs", "python", code="import time; time.sleep(60)", timeout=0.5),
        check("after", "python", code="print(2)"),
        check("command", "command", argv=["sleep", "60"], timeout=0.2),
    )
    assert states(report) == ["fail", "pass", "fail"]
    assert "within 0.5 s" in report.results[0].message
    assert time.monotonic() - start < 20


def test_a_missing_interpreter_fails(tmp_path: Path) -> None:
    report = go(
        tmp_path, check("a", "python", code="1", python="false"), check("b", "python", code="1", python="false")
    )
    assert states(report) == ["fail", "fail"]


def test_commands(tmp_path: Path) -> None:
    report = go(
        tmp_path,
        check("status", "command", argv=["sh", "-c", "echo out; echo err >&2; exit 3"], status=3, matches="err"),
        check("fails", "command", argv=["sh", "-c", "echo why; exit 3"]),
    )
    assert states(report) == ["pass", "fail"]
    assert report.results[1].message == "exit status 3: why"


def test_imports(tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text("__version__ = '1.0'")
    report = go(
        tmp_path,
        check("tiny", "import", module="tiny", version="1.0"),
        check("old", "import", module="tiny", version="2.0"),
        check("none", "import", module="no_such_module"),
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert states(report) == ["pass", "fail", "fail"]
    assert report.results[1].message == "the result is 1.0, expected 2.0"
    assert "ModuleNotFoundError" in report.results[2].message


@pytest.mark.parametrize(
    ("output", "version", "expected"),
    [
        ('{"/opt/nccl/lib/libnccl.so.2.29.7": 22907}', "2.29.7-1", "/opt/nccl/lib/libnccl.so.2.29.7 (2.29.7)"),
        ('warning\n{"/opt/nccl/lib/libnccl.so.2.29.7": 22907}', None, "/opt/nccl/lib/libnccl.so.2.29.7 (2.29.7)"),
        ('{"/opt/nccl/lib/libnccl.so.2": 22809}', "2.29.7", "!2.28.9); expected version 2.29.7"),
        ('{"/usr/lib/libnccl.so.2": 22907}', None, "!expected one below /opt/nccl"),
        ('{"/opt/nccl/lib/a/libnccl.so.2": 22907, "/usr/lib/libnccl.so.2": 22907}', None, "!expected one below"),
        ("{}", None, "!libnccl in memory: none"),
        ("no such thing", None, "!"),
    ],
)
def test_mapped_nccl(output: str, version: str | None, expected: str) -> None:
    judge = execution_of(check("x", "nccl-mapped", **({"version": version} if version else {}))).judge
    if not expected.startswith("!"):
        assert judge(0, output) == expected
        return
    with pytest.raises((CheckFailed, ValueError)) as caught:
        judge(0, output)
    assert expected[1:] in str(caught.value)


def test_mapped_nccl_asks_the_mapped_file(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    result = go(tmp_path, check("x", "nccl-mapped"), env={"PYTHONPATH": str(tmp_path)}).results[0]
    assert "libnccl in memory: none" in result.message


def test_ptxas_that_assembles(tmp_path: Path) -> None:
    folder = tmp_path / "triton" / "backends" / "nvidia"
    folder.mkdir(parents=True)
    tool = tmp_path / "ptxas"
    (folder / "compiler.py").write_text(
        f"class Tool:\n    path = {str(tool)!r}\ndef get_ptxas(arch):\n    assert arch == 121\n    return Tool\n"
    )

    # Its last argument is the file to make; a cubin is an ELF file for machine 190. The flags are those that ptxas
    # 13.0 and 12.9 write.
    def makes(version: int, flags: int) -> Result:
        cubin = tmp_path / "made"
        cubin.write_bytes(struct.pack("<4s4xB9xH28xI12x", b"\x7fELF", version, 190, flags))
        tool.write_text(f"#!/bin/sh\ngrep -q 'target sm_121a' $2 || exit 9\ncp {cubin} $4\n")
        tool.chmod(0o755)
        return go(tmp_path, check("x", "ptxas-assembles"), env={"PYTHONPATH": str(tmp_path)}).results[0]

    assert makes(8, 0x6007902).message == str(tool)
    assert makes(8, 0x600790A).message == str(tool)
    for version, flags, made in ((8, 0x6007802, "sm_120"), (7, 0x5A0D5A, "sm_90")):
        result = makes(version, flags)
        assert result.status == "fail"
        assert f"made code for {made} instead of sm_121a" in result.message
    tool.write_text("#!/bin/sh\necho 'ptxas fatal: sm_121a is not defined'\nexit 255\n")
    result = go(tmp_path, check("x", "ptxas-assembles", path=str(tool))).results[0]
    assert result.status == "fail"
    assert "sm_121a is not defined" in result.message


def test_a_check_that_the_runner_cannot_run_is_not_run(tmp_path: Path) -> None:
    report = go(tmp_path, check("user", "python", code="1", user="4711"), check("here", "python", code="1"))
    assert states(report) == ["not-run", "pass"]
    assert report.results[0].message == "no such user here"


def test_without_a_runner_no_check_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builder.smoke.cpu.runc.tool_path", lambda name: None)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    report = run_cpu(layout(tmp_path / "image", [{"a": b""}]), None, [check("x", "python", code="1")], folder=tmp_path)
    (result,) = report.results
    assert isinstance(result, Result)
    assert result.status == "not-run"
    assert result.message.startswith("docker: docker's daemon does not answer: No such file or directory; runc: ")
    assert report.ok()
    assert not report.ok(require=True)
    with pytest.raises(CheckNotRun, match=r"^docker: docker's daemon does not answer"):
        pick_runner(None, tmp_path, "docker")  # type: ignore[arg-type]
    monkeypatch.setattr("builder.smoke.cpu.select.RuncRunner", lambda image, folder: "a runner")
    said: list[str] = []
    assert pick_runner(None, tmp_path, say=said.append) == "a runner"  # type: ignore[arg-type, comparison-overlap]
    assert said == ["runc is used, not docker: docker's daemon does not answer: No such file or directory"]


@pytest.mark.parametrize(
    ("kind", "args", "id", "names"),
    [
        ("imports", {"module": "x"}, "check-kind-unknown", "'imports'"),
        ("import", {}, "check-arguments-wrong", "module: "),
        ("import", {"module": "x", "timeout": "soon"}, "check-arguments-wrong", "timeout: "),
        ("python", {"code": "1", "env": ["A=1"]}, "check-arguments-wrong", "env: "),
        ("ptxas-assembles", {"arch": "sm_121a\n.x"}, "check-arch-wrong", "sm_121a"),
    ],
)
def test_a_wrong_check_is_an_error(kind: str, args: dict[str, Any], id: str, names: str) -> None:
    with fails(InvalidError, id) as caught:
        execution_of(check("x", kind, **args))
    assert names in str(caught.value)


def test_registered_needs_an_enabled_entry_with_flag_f(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = tmp_path / "qemu-aarch64"
    monkeypatch.setattr(runners, "BINFMT", entry)
    assert not runners.registered()
    (tmp_path / "status").write_text("enabled\n")
    for text, wanted in (
        ("enabled\nflags: OCF\n", True),
        ("disabled\nflags: F\n", False),
        ("enabled\nflags: \n", False),
    ):
        entry.write_text(text)
        assert runners.registered() is wanted
    entry.write_text("enabled\nflags: F\n")
    (tmp_path / "status").write_text("disabled\n")
    assert not runners.registered()


def start(where: Path, *words: str) -> tuple[str, str]:
    """Status and message of the check for an image that starts this command."""
    image = layout(where / "image", [{"a": b""}], Entrypoint=list(words[:1]), Cmd=list(words[1:]))
    report = run_cpu(image, None, [check("start", "fails-without-gpu")], folder=where, runner=LocalRunner())
    return report.results[0].status, report.results[0].message


def test_a_server_without_a_gpu_reports_it_and_exits(tmp_path: Path) -> None:
    report = "echo 'RuntimeError: Failed to infer device type'"
    assert start(tmp_path, "sh", "-c", f"{report}; exit 1") == ("pass", "exit status 1: Failed to infer device type")
    for script, why in (
        (f"{report}; exit 0", "exits with 0 without a GPU"),
        ("echo 'No module named vllm'; exit 1", "does not report that there is no GPU"),
        (f"{report}; kill -SEGV $$", "a signal ended it"),
    ):
        status, message = start(tmp_path, "sh", "-c", script)
        assert (status, why in message) == ("fail", True), message
    assert start(tmp_path)[0] == "fail"


def structure(**more: Any) -> Check:
    script = "echo out; echo err >&2; exit 3"
    return check("structure", "structure-command", argv=["sh", "-c", script], **more)


def test_structure_commands_are_judged_by_separate_output_and_errors(tmp_path: Path) -> None:
    good = {"status": 3, "expected_output": ["^out"], "excluded_output": ["err"], "expected_error": ["err"]}
    assert states(go(tmp_path, structure(**good, excluded_error=["out"])))[0] == "pass"
    for change, expected in (
        ({"status": 0}, "exit status 3, not 0"),
        ({"expected_output": ["err"]}, "the output does not match 'err'"),
        ({"excluded_error": ["e.r"]}, "the error matches 'e.r'"),
    ):
        found = go(tmp_path, structure(**{**good, **change}))
        assert (found.results[0].status, expected in found.results[0].message) == ("fail", True)
    failed = check("structure", "structure-command", argv=["sh", "-c", "exit 125"])
    assert "setup failed" in go(tmp_path, failed).results[0].message


def test_non_root_runs_as_an_unknown_user(tmp_path: Path) -> None:
    assert execution_of(check("a", "non-root")).user == "54321:54321"
    assert execution_of(check("a", "non-root", user="1000")).user == "1000"


def test_media_checks_have_code_that_compiles() -> None:
    for kind in ("audio-decodes", "video-decodes", "non-root"):
        assert compile(execution_of(check("a", kind)).code, kind, "exec").co_names
