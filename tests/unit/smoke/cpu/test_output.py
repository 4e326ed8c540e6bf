"""What a command prints is judged: warnings, forged results, long lines."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from builder.errors import InvalidError
from builder.smoke.cpu.runner import Command, Tail, follow, run
from builder.smoke.report import Report
from tests.support.errors import fails
from tests.support.hostile import limit
from tests.support.limits import ends
from tests.support.local_runner import LocalRunner, check, go


def test_long_lines_without_end(tmp_path: Path) -> None:
    done = run(LocalRunner(), Command(["sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x"]), 20)
    assert done.code == 0
    assert len(done.output) == 100_000


def by_id(report: Report) -> dict[str, tuple[str, str]]:
    return {result.id: (result.status, result.message) for result in report.results}


def test_lines_that_look_like_warnings_are_declared_or_fail(tmp_path: Path) -> None:
    checks = [
        check("quiet", "python", code="print('INFO all is well')"),
        check("known", "python", code="print('WARNING 12:01 no driver'); print('WARNING 12:02 no driver')"),
        check("child", "command", argv=["sh", "-c", "echo 'x.py:3: DeprecationWarning: old' >&2"]),
        check("broken", "python", code="raise ValueError('Error: in its own result')"),
        check("declared", "expected-log", pattern="no driver$", why="there is no GPU here"),
        check("not-seen", "expected-log", pattern="never", why="for other versions of it"),
        check("log", "log"),
    ]
    found = by_id(go(tmp_path, *checks))
    assert found["declared"] == ("pass", "2 lines: there is no GPU here")
    assert found["not-seen"] == ("pass", "0 lines: for other versions of it")
    assert found["log"][0] == "fail"
    assert found["log"][1].splitlines()[1:] == ["child: x.py:3: DeprecationWarning: old"]
    assert by_id(go(tmp_path, *checks[:-1]))["log"][0] == "warn"
    found = by_id(go(tmp_path, *(each for each in checks if each.id != "child")))
    assert found["log"] == ("pass", "2 lines look like warnings, all are declared")


@pytest.mark.parametrize(
    ("args", "id"),
    [
        ({"pattern": "x"}, "check-arguments-wrong"),
        ({"pattern": "x", "why": "short"}, "check-reason-missing"),
        ({"pattern": "[", "why": "long enough"}, "check-pattern-wrong"),
        ({"why": "x" * 20}, "check-arguments-wrong"),
    ],
)
def test_a_declaration_needs_a_pattern_and_a_reason(tmp_path: Path, args: dict[str, Any], id: str) -> None:
    with fails(InvalidError, id):
        go(tmp_path, check("a", "python", code="1"), check("declared", "expected-log", **args))


FORGED = {
    "no literal": "print(mark + 'junk (((')",
    "an end without a begin": "print(mark + 'pass '); print(mark + 'pass ')",
    "more checks than there are": "[print(mark + what) for what in ('begin', 'pass ') * 3]",
    "wrong escapes": "print(mark + 'begin'); print(mark + 'fail \\\\x')",
    "begins without end": "[(print(mark + 'begin', flush=True), time.sleep(0.1)) for _ in range(300)]",
}


@pytest.mark.parametrize("text", FORGED.values(), ids=FORGED)
def test_an_interpreter_that_prints_anything_gets_results_in_time(tmp_path: Path, text: str) -> None:
    """It is the image's, and knows the mark of the lines."""

    class Hostile(LocalRunner):
        def start(self, command: Command) -> subprocess.Popen[bytes]:
            code = f"import sys, time\nmark = sys.argv[1]\n{text}"
            return super().start(Command([sys.executable, "-c", code, *command.argv[3:]], command.env))

    start = time.monotonic()
    checks = [check(name, "python", code="pass", timeout=2.0) for name in ("one", "two")]
    report = go(tmp_path, *checks, runner=Hostile(), progress=print)
    assert len([row for row in report.results if row.id != "log"]) == 2
    assert time.monotonic() - start < 20


def test_the_longest_output_of_a_check_is_one_line(tmp_path: Path) -> None:
    code = "import sys; sys.stdout.buffer.write(b'\\xff' * 60000 + '\\U0001f600 end'.encode())"
    (result, *_) = go(tmp_path, check("bytes", "python", code=code, matches="\U0001f600 end$")).results
    assert (result.status, result.message) == ("pass", "\U0001f600 end")


def test_a_command_that_prints_without_end_is_killed_at_its_deadline() -> None:
    """Its lines came faster than they were read, so that there was always one more."""

    class Slow(Tail):
        def add(self, line: bytes) -> None:
            time.sleep(0.02)

    process = LocalRunner().start(Command(["yes"]))
    start = time.monotonic()
    with limit(20):
        assert follow(process, Slow().add, lambda: start + 0.5) is None
    assert time.monotonic() - start < 5


def test_a_declaration_is_searched_in_time(tmp_path: Path) -> None:
    """The pattern is a project's, and the output an image's: Python's own expressions took years."""
    declared = check("declared", "expected-log", pattern="(a+)+$", why="a line of the tests")
    code = "print('WARNING ' + 'a' * 5000 + '!')"
    ends(lambda: go(tmp_path, check("a", "python", code=code), declared))
    with fails(InvalidError, "check-pattern-wrong"):
        go(tmp_path / "other", check("b", "expected-log", pattern="(?=a)", why="a line of the tests"))
