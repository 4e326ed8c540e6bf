"""The process that rebuilds layers under one variation: `python -m builder.verify.vary.worker REQUEST`.

It varies what a process can vary of itself, builds, and writes what it made to a file. Messages go to standard error.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from builder.engine.select import select_engine
from builder.errors import BuilderError, EngineError
from builder.events import Event
from builder.mirror.folder import FolderBackend
from builder.mirror.source import MirrorSource
from builder.model.plan import Plan
from builder.plan.bundle import LIMIT, read_bundle
from builder.produce.build import Builder
from builder.produce.survey import check_space, survey
from builder.regular import read_regular
from builder.store.store import Store
from builder.verify.vary.clock import library, seconds, with_clock

_HOUR = 3600


@dataclass(frozen=True)
class Request:
    """What to build, and what to vary: the members of `Variation` of the same name.

    bundle: the file of the plan. layers: their ids. expected: the digests of their blobs; other blobs are copied to
    `out`, beside `result.json`. root: of the store, which holds inputs. inputs: a mirror of them, if it does not.
    memory: bytes of a file system in memory for the store.
    """

    bundle: str
    layers: list[str]
    expected: dict[str, str]
    root: str
    out: str
    engine: str | None
    builder: Sequence[str] | None
    jobs: int | None
    inputs: str | None = None
    memory: int | None = None
    umask: int | None = None
    hostname: str | None = None
    cpus: int | None = None
    clock: str | None = None


def main(arguments: list[str]) -> int:
    """Build what the file of a request says. Exit status: 0, or that of the error, which the result names."""
    # As Ctrl-C does: an engine ends only with the process that knows of it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    request = Request(**json.loads(Path(arguments[0]).read_text("utf-8")))
    # Only this process has the other clock; programs that it starts have their own.
    os.environ.pop("LD_PRELOAD", None)
    out = Path(request.out)
    try:
        _vary(request)
        result: dict[str, Any] = {"layers": _build(request)}
    except BuilderError as error:
        result = {"error": {"id": error.id, "text": str(error), "code": int(error.code)}}
    (out / "result.json").write_text(json.dumps(result), "utf-8")
    return 0 if "layers" in result else 1


def _vary(request: Request) -> None:
    # The clock runs since the process started: its year may have changed since.
    if request.clock is not None and not 0 <= time.time() - seconds(request.clock) < _HOUR:
        raise EngineError("the clock of this process cannot be set", id="vary-clock")
    if request.hostname is not None:
        socket.sethostname(request.hostname)
    if request.cpus is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: request.cpus])
    if request.memory is not None:
        Path(request.root).mkdir(parents=True, exist_ok=True)
        options = f"size={request.memory},mode=0700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", request.root], check=True)
    if request.umask is not None:
        os.umask(request.umask)


def _build(request: Request) -> dict[str, dict[str, Any]]:
    plan = read_bundle(read_regular(Path(request.bundle), LIMIT), request.bundle)
    part = plan.only(request.layers)
    if request.clock is not None:
        part = _clocked(part, request.clock)
    store = Store(Path(request.root))
    needs = survey(store, part)
    check_space(store, needs)
    Builder(
        store,
        part,
        engine=partial(select_engine, request.engine, request.builder),
        offline=True,
        listener=_silent,
        log=lambda line: print(line, file=sys.stderr),
        jobs=request.jobs,
        source=MirrorSource(FolderBackend(Path(request.inputs))) if request.inputs is not None else None,
    ).run(needs)
    made = {}
    for layer in part.layers:
        record = store.layer(layer.key)
        assert record is not None
        made[layer.id] = {"digest": record.digest, "size": record.size, "diff_id": record.diff_id}
        if record.digest != request.expected[layer.id]:
            # The file system in memory ends with this process.
            shutil.copyfile(store.blob(record.digest), Path(request.out) / record.digest.hex)
    return made


def _clocked(plan: Plan, clock: str) -> Plan:
    found = library()
    if found is None:
        raise EngineError("datefudge is not installed", id="vary-clock-library")
    code = found.read_bytes()
    layers = (with_clock(item, clock, code) if item.producer == "dockerfile" else item for item in plan.layers)
    return replace(plan, layers=tuple(layers))


def _silent(event: Event) -> None:
    """Progress is not shown."""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
