"""Reports for people and for machines."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from builder.digest import Digest
from builder.smoke.report import Report, Result
from builder.text import printable

DIGEST = Digest("sha256:" + "a" * 64)
REPORT = Report(
    DIGEST,
    [
        Result("nccl-cubin", "cubin", "static", "pass", "sm_121 (12)", 0.01),
        Result("nccl-mapped", "nccl-mapped", "cpu", "fail", "first\nsecond [red]\x1b[31m <&>", 12.34),
        Result("vllm", "import", "cpu", "not-run", "no qemu", 0.0),
    ],
    ["run under qemu"],
)


def test_ok() -> None:
    assert not REPORT.ok()
    half = Report(DIGEST, [REPORT.results[0], REPORT.results[2]])
    assert half.ok()
    assert not half.ok(require=True)
    assert Report(DIGEST, REPORT.results[:1]).ok(require=True)


def test_table() -> None:
    text = REPORT.as_table(width=120)
    assert "not run" in text
    assert "12.3 s" in text
    assert "[red]" in text
    assert "\x1b" not in text
    assert text.endswith(f"1 passed, 1 failed, 1 not run: {DIGEST}\n")
    assert "\x1b[" in REPORT.as_table(width=120, color=True)


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_shows_every_word(width: int) -> None:
    lines = REPORT.as_table(width=width).splitlines()
    assert max(map(len, lines[:-1])) <= width
    assert "…" not in "".join(lines)
    for result in REPORT.results:
        assert any(line.endswith(f"  {result.id}") for line in lines)
        assert "".join(printable(result.message).split()) in "".join("".join(lines).split())


def test_json() -> None:
    data = json.loads(json.dumps(REPORT.as_dict()))
    assert (data["digest"], data["ok"], data["passed"], data["failed"], data["not_run"]) == (DIGEST, False, 1, 1, 1)
    assert data["results"][0] == {
        "id": "nccl-cubin",
        "kind": "cubin",
        "tier": "static",
        "status": "pass",
        "message": "sm_121 (12)",
        "seconds": 0.01,
    }


def test_junit() -> None:
    root = ElementTree.fromstring(REPORT.as_junit())
    static, cpu = root.findall("testsuite")
    assert static.get("name") == f"static {DIGEST}"
    assert (cpu.get("tests"), cpu.get("failures"), cpu.get("skipped")) == ("2", "1", "1")
    failure = cpu.find("testcase/failure")
    assert failure is not None
    assert failure.get("message") == "first"
    assert failure.text == "first\nsecond [red]?[31m <&>"
    assert [case.get("classname") for case in root.iter("testcase")] == [
        "static.cubin",
        "cpu.nccl-mapped",
        "cpu.import",
    ]


def test_add() -> None:
    whole = Report(DIGEST)
    whole.add(REPORT)
    assert len(whole.results) == 3
    assert whole.notes == ["run under qemu"]
