"""The report of a run: a table and curves for people, and JSON for programs."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from measure import Row, Sample, median, spread

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 560, 240, 60, 40


def machine() -> dict[str, Any]:
    """What the figures are of."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "architecture": platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 1e9),
        "python": platform.python_version(),
        "kernel": platform.release(),
    }


@dataclass(frozen=True)
class Run:
    """The rows of one case, and the machine and the command that made them."""

    case: str
    machine: dict[str, Any]
    command: str
    rows: Sequence[Row]


def read(folder: Path) -> list[Run]:
    """The runs of speed.json in a folder; none if there is no such file."""
    file = folder / "speed.json"
    if not file.exists():
        return []
    runs = []
    for run in json.loads(file.read_text("utf-8")):
        rows = [
            Row(**{**row, **{side: [Sample(**sample) for sample in row[side]] for side in ("ours", "theirs")}})
            for row in run["rows"]
        ]
        runs.append(Run(**{**run, "rows": rows}))
    return runs


def write(new: Sequence[Run], folder: Path) -> None:
    """Write speed.md, speed.json, and speed-CASE.svg for each curve. Runs of other cases that are there stay."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {run.case: run for run in (*read(folder), *new)}
    runs = sorted(made.values(), key=lambda run: (str(run.machine), list(made).index(run.case)))
    (folder / "speed.json").write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n", "utf-8")
    (folder / "speed.md").write_text(as_markdown(runs), "utf-8")
    for run in runs:
        if points := _curve(run):
            (folder / f"speed-{run.case}.svg").write_text(_svg(points), "utf-8")


def as_markdown(runs: Sequence[Run]) -> str:
    """A page: for each machine a table, and a picture for each curve."""
    lines = [
        "# Speed",
        "",
        "`builder` against what people would use instead, on the same inputs in the same run.",
        "Times are medians of runs in turns; ± is the largest difference from the median. CPU seconds and memory are",
        "those of the command, without daemons that work for it. A ratio is the time of `builder` by that of the peer.",
        "",
    ]
    for text, group in groupby(runs, key=lambda run: _where(run.machine)):
        same = list(group)
        rows = [row for run in same for row in run.rows]
        lines += [
            f"## {text}",
            "",
            "| work | runs | seconds | CPU s | MB | peer | seconds | ratio | target | holds |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *map(_line, rows),
            "",
        ]
        if notes := [f"* {note}" for note in dict.fromkeys(f"{row.work}: {row.note}." for row in rows if row.note)]:
            lines += [*notes, ""]
        lines += ["    " + "\n    ".join(dict.fromkeys(run.command for run in same)), ""]
        for run in same:
            if _curve(run):
                lines += [f"![seconds of {run.case}, by size](speed-{run.case}.svg)", ""]
    return "\n".join(lines)


def _where(about: dict[str, Any]) -> str:
    return (
        f"{about['date']}: {about['architecture']}, {about['processors']} processors, {about['memory_gb']} GB, "
        f"Python {about['python']}, Linux {about['kernel']}"
    )


def _line(row: Row) -> str:
    cpu = sorted(sample.cpu for sample in row.ours)[len(row.ours) // 2]
    peak = max(sample.peak for sample in row.ours)
    theirs = f"{_seconds(row.theirs)}" if row.theirs else ""
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    target = "" if row.target is None else f"≤ {row.target:.3g}" + ("" if row.theirs else " s")
    holds = {None: "", True: "yes", False: "**no**"}[row.holds]
    cells = (row.work, len(row.ours), _seconds(row.ours), f"{cpu:.1f}", round(peak / 1e6), row.peer, theirs, ratio)
    return "| " + " | ".join(str(cell) for cell in (*cells, target, holds)) + " |"


def _seconds(samples: Sequence[Any]) -> str:
    middle = median(samples)
    return f"{middle:.2f} ± {100 * spread(samples):.0f} %" if len(samples) > 1 else f"{middle:.2f}"


def _curve(run: Run) -> list[Row]:
    """The rows that are points of a curve, if there are two or more, each once."""
    points = list({row.size: row for row in run.rows if row.size is not None}.values())
    return points if len(points) > 1 else []


def _svg(points: Sequence[Row]) -> str:
    """A curve with linear seconds over sizes in equal steps, and the peer's beside it where there is one."""
    ours = [row.seconds for row in points]
    theirs = [row.seconds / row.ratio for row in points if row.ratio]
    most = max([*ours, *theirs])
    step = (_WIDTH - 2 * _LEFT) / (len(points) - 1)

    def place(number: int, seconds: float) -> str:
        return f"{_LEFT + number * step:.1f},{_HEIGHT - _BOTTOM - seconds / most * (_HEIGHT - 2 * _BOTTOM):.1f}"

    def line(values: Sequence[float], name: str, color: str) -> list[str]:
        path = " ".join(place(number, value) for number, value in enumerate(values))
        x, y = place(len(values) - 1, values[-1]).split(",")
        return [
            f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>',
            f'<text x="{x}" y="{float(y) - 6:.1f}" text-anchor="end" fill="{color}">{name} {values[-1]:.2g} s</text>',
        ]

    labels = [
        f'<text x="{_LEFT + number * step:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{row.size:,}</text>'
        for number, row in enumerate(points)
    ]
    axis = f'<path d="M{_LEFT} {_BOTTOM}V{_HEIGHT - _BOTTOM}H{_WIDTH - _LEFT}" fill="none" stroke="gray"/>'
    curves = line(ours, "builder", "#2563eb") + (line(theirs, points[0].peer, "#b45309") if theirs else [])
    box = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12" fill="gray"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {box}>', axis, *curves, *labels, "</svg>", ""])
