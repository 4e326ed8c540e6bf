"""Another clock, with datefudge: for a process of this machine, and for the steps of a layer.

A time namespace of Linux does not change the date, so that the C library's calls are replaced. libfaketime would do it
too, but its processes share a semaphore: with it, a parallel compile of NCCL had not ended after six times the usual
time.
"""

from __future__ import annotations

import calendar
import re
import time
from dataclasses import replace
from pathlib import Path

from builder.model.plan import PlannedLayer

NOT_SET = "builder-clock-not-set"
"""What a step prints when its clock cannot be set."""
_NAME = ".builder-clock.so"
_PLACES = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib")


def library() -> Path | None:
    """The library of datefudge; None where it is not installed.

    It replaces the calls that ask for the date: the monotonic clock, of timeouts, and the times of files stay.
    """
    for place in _PLACES:
        for pattern in ("datefudge/datefudge.so", "*/datefudge/datefudge.so"):
            if found := sorted(Path(place).glob(pattern)):
                return found[0]
    return None


def seconds(clock: str) -> int:
    """A date and time in UTC, as in `2001-02-03 04:05:06`, in seconds since 1970."""
    return calendar.timegm(time.strptime(clock, "%Y-%m-%d %H:%M:%S"))


def environment(clock: str) -> dict[str, str]:
    """The variables of a process whose clock begins at `clock`, and runs; none where datefudge is not installed."""
    found = library()
    return {"LD_PRELOAD": str(found), "DATEFUDGE": str(int(time.time()) - seconds(clock))} if found is not None else {}


def with_clock(layer: PlannedLayer, clock: str, code: bytes) -> PlannedLayer:
    """A `dockerfile` layer whose steps see a clock whose seconds stand still at `clock`.

    code: the library, of the architecture of the steps. A step ends with NOT_SET where the clock cannot be set.
    """
    assert layer.dockerfile is not None
    path = f"layers/{layer.layer}/{_NAME}"
    lines = (
        f"COPY {path} /{_NAME}\n"
        f"ENV LD_PRELOAD=/{_NAME} DATEFUDGE={seconds(clock)} DATEFUDGE_DOSTATIC=1\n"
        f'RUN test "$(date +%Y)" = {clock[:4]} || {{ echo {NOT_SET}; exit 1; }}\n'
    )
    first, *stages = re.split(r"(?m)^(?=FROM )", layer.dockerfile)
    text = first + "".join(_started(stage, lines) if re.search(r"(?m)^RUN ", stage) else stage for stage in stages)
    return replace(layer, dockerfile=text, context={**layer.context, path: code})


def _started(stage: str, lines: str) -> str:
    head, newline, rest = stage.partition("\n")
    return f"{head}{newline}{lines}{rest}"
