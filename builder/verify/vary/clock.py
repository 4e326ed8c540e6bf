"""Another clock, with libfaketime: for a process of this machine, and for the steps of a layer.

A time namespace of Linux does not change the date, so that the C library's calls are replaced.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from builder.model.plan import PlannedLayer

NOT_SET = "builder-clock-not-set"
"""What a step prints when its clock cannot be set."""
_NAME = ".builder-clock.so"
_PLACES = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib")
_SETTINGS = {"NO_FAKE_STAT": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1"}
"""Times of files stay: the kernel sets them. Timeouts use the monotonic clock, which stays too."""


def library(threads: bool) -> Path | None:
    """libfaketime; None where it is not installed. threads: the one for programs with threads."""
    name = f"libfaketime{'MT' if threads else ''}.so.1"
    for place in _PLACES:
        for pattern in (f"faketime/{name}", f"*/faketime/{name}"):
            if found := sorted(Path(place).glob(pattern)):
                return found[0]
    return None


def environment(clock: str) -> dict[str, str]:
    """The variables of a process whose clock begins at `clock`, and runs."""
    found = library(threads=True)
    return {"LD_PRELOAD": str(found), "FAKETIME": f"@{clock}", "TZ": "UTC", **_SETTINGS} if found is not None else {}


def with_clock(layer: PlannedLayer, clock: str, code: bytes) -> PlannedLayer:
    """A `dockerfile` layer whose steps see a clock that stands still at `clock`.

    code: libfaketime, of the architecture of the steps. A step ends with NOT_SET where the clock cannot be set.
    """
    assert layer.dockerfile is not None
    path = f"layers/{layer.layer}/{_NAME}"
    settings = " ".join(f"{name}={value}" for name, value in _SETTINGS.items())
    lines = (
        f"COPY {path} /{_NAME}\n"
        f'ENV LD_PRELOAD=/{_NAME} FAKETIME="{clock}" {settings}\n'
        f'RUN test "$(date +%Y)" = {clock[:4]} || {{ echo {NOT_SET}; exit 1; }}\n'
    )
    first, *stages = re.split(r"(?m)^(?=FROM )", layer.dockerfile)
    text = first + "".join(_started(stage, lines) if re.search(r"(?m)^RUN ", stage) else stage for stage in stages)
    return replace(layer, dockerfile=text, context={**layer.context, path: code})


def _started(stage: str, lines: str) -> str:
    head, newline, rest = stage.partition("\n")
    return f"{head}{newline}{lines}{rest}"
