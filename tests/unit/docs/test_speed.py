"""The benchmarks' own arithmetic and report, on commands of milliseconds. No test depends on the machine's speed."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.project import ROOT

MODULES = ("measure", "report", "place", "commands", "layers")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    monkeypatch.syspath_prepend(str(ROOT / "scripts/bench"))
    yield {name: __import__(name) for name in MODULES}
    for name in MODULES:
        sys.modules.pop(name, None)


def samples(bench: Any, *seconds: float) -> list[Any]:
    return [bench["measure"].Sample(each, each / 2, 50_000_000) for each in seconds]


def test_sides_run_in_turns_each_after_what_prepares_it(bench: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    ours, theirs = (bench["measure"].Command(f"echo {name} >>{log}") for name in ("ours", "theirs"))

    def prepare() -> None:
        with log.open("a") as file:
            file.write("prepared\n")

    found = bench["measure"].in_turns(2, ours, theirs, before=(None, prepare))
    assert log.read_text().split() == ["ours", "prepared", "theirs"] * 2
    assert [len(each) for each in found] == [2, 2]


def test_a_sample_has_the_processor_time_and_memory_of_the_command(bench: Any) -> None:
    busy = "import os; held = b'x' * 90_000_000\nwhile os.times().user < 0.3: pass"
    sample = bench["measure"].Command([sys.executable, "-c", busy]).run()
    assert sample.cpu >= 0.3
    assert sample.peak > 90_000_000


@pytest.mark.parametrize("text", [["sh", "-c", "echo what happened; exit 3"], "echo what happened; false | true"])
def test_a_command_that_fails_is_no_measurement(bench: Any, text: Any) -> None:
    with pytest.raises(bench["measure"].Failed, match="what happened"):
        bench["measure"].Command(text).run()


def test_ratios_are_of_medians_and_a_missed_target_is_shown(bench: Any, tmp_path: Path) -> None:
    row = bench["measure"].Row
    rows = [
        row("a", "one", samples(bench, 1, 2, 9), "peer", samples(bench, 4, 4, 5), 0.4, "a note"),
        row("a", "two", samples(bench, 0.2), target=0.25),
        row("grow", "first", samples(bench, 1), "tar", samples(bench, 2), size=1),
        row("grow", "second", samples(bench, 3), "tar", samples(bench, 2), size=1000),
    ]
    assert [each.holds for each in rows] == [False, True, None, None]
    report = bench["report"]
    other = {**report.machine(), "processors": 999}
    runs = [report.Run("a", report.machine(), "the command", rows[:2]), report.Run("grow", other, "another", rows[2:])]
    report.write([runs[1], report.Run("a", report.machine(), "an older command", rows[2:3])], tmp_path)
    report.write([runs[0]], tmp_path)
    page = (tmp_path / "speed.md").read_text("utf-8")
    assert "| one | 3 | 2.00 ± 350 % | 1.0 | 50 | peer | 4.00 ± 25 % | 0.50 | ≤ 0.4 | **no** |" in page
    assert "| two | 1 | 0.20 | 0.1 | 50 |  |  |  | ≤ 0.25 s | yes |" in page
    assert "* one: a note." in page
    assert "the command" in page and "another" in page and "an older command" not in page
    assert page.count("## ") == 2 and "999 processors" in page
    found = {run["case"]: run for run in json.loads((tmp_path / "speed.json").read_text())}
    assert found["a"]["rows"][0]["ours"][2]["seconds"] == 9
    assert {run.case: run.command for run in report.read(tmp_path)} == {"a": "the command", "grow": "another"}
    assert [path.name for path in tmp_path.glob("*.svg")] == ["speed-grow.svg"]
    picture = ET.parse(tmp_path / "speed-grow.svg").getroot()
    assert [len(line.attrib["points"].split()) for line in picture.iter("{http://www.w3.org/2000/svg}polyline")] == [
        2,
        2,
    ]


def test_recipes_are_read_by_the_real_program(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench["commands"], "COUNTS", (1, 2))
    place = bench["place"].Place(tmp_path, tmp_path / "inputs", 1, "hermetic-0.20")
    assert [row.size for row in bench["commands"].recipes(place)] == [1, 2]


def test_a_layer_is_written_beside_tar_and_zstd(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench["layers"], "COUNTS", (1, 30))
    monkeypatch.setattr(bench["layers"], "BYTES", 3000)
    if missing := bench["place"].needed("openssl", "zstd"):
        pytest.skip(missing)
    place = bench["place"].Place(tmp_path, tmp_path / "inputs", 1, "hermetic-0.20")
    rows = list(bench["layers"].layers(place))
    assert [row.size for row in rows if row.size is not None] == [1, 30]
    assert {row.peer for row in rows} == {"tar, zstd", "tar, zstd and both digests"}
