"""NCCL with all that `builder` does around it, against plain `make` in the same toolchain. Needs root, for a chroot."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from measure import Command, Row, in_turns
from place import MODULES, Place, remove

from builder.engine.interface import host_architecture
from builder.engine.select import select_engine
from builder.model.plan import Plan
from builder.plan.resolve import resolve
from builder.produce.build import Builder
from builder.produce.survey import survey, survey_roots
from builder.project import Project
from builder.store.store import Store

SMALL = "AllReduce Sum f32 RING LL"


def nccl(place: Place) -> Iterator[Row]:
    """A small set of functions. The toolchain is unpacked before the measurement on both sides."""
    yield replace(_compiled(place, SMALL), target=None)


def nccl_all(place: Place) -> Iterator[Row]:
    """All functions: 12 minutes on two cores, twice for each run."""
    yield _compiled(place, "all")


def _compiled(place: Place, functions: str) -> Row:
    store, plan = Store(place.inputs), _plan(functions)
    Builder(store, plan, **_quiet()).run(survey_roots(store, plan))
    toolchain = next(layer for layer in plan.toolchains if layer.id == f"toolchain-{host_architecture()}")
    layer = next(layer for layer in plan.layers if layer.id == "nccl")
    environ = {"PYTHONPATH": MODULES}
    ours = Command([sys.executable, __file__, str(place.inputs), functions], environ)
    root = place.folder / "root"

    def unpack() -> None:
        remove(root)
        (root / "src").mkdir(parents=True)
        record = store.layer(toolchain.key)
        assert record is not None
        subprocess.run(["tar", "-xf", str(store.blob(record.digest)), "-C", str(root)], check=True)
        source = store.blob(layer.inputs[0].digest)
        subprocess.run(["tar", "-xzf", str(source), "-C", str(root / "src")], check=True)

    # The RUN instruction with `make` in the layer's Dockerfile has the arguments.
    text = layer.dockerfile.replace("\\\n", " ")
    line = next(line for line in text.splitlines() if line.startswith("RUN") and " make " in line)
    command = f"cd /src && mv nccl-* nccl && {line.removeprefix('RUN ')}"
    mounts = f"mount --bind /dev {root}/dev && mount -t proc proc {root}/proc"
    inner = f"{mounts} && exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C"
    inner += f" JOBS={os.cpu_count()} chroot {root} sh -ec {shlex.quote(command)}"
    make = Command(["unshare", "--mount", "sh", "-ec", inner])
    found = in_turns(place.runs, ours, make, before=(None, unpack))
    remove(root)
    return Row("nccl", f"NCCL, functions {functions}", found[0], "plain make", found[1], 1.05)


def _plan(functions: str) -> Plan:
    project = Project()
    return resolve(project, project.recipe("nemotron-omni"), base="hermetic", sets={"nccl": {"functions": functions}})


def _quiet() -> dict[str, Any]:
    engine = {"engine": lambda: select_engine("auto")}
    return {**engine, "offline": False, "listener": lambda event: None, "log": lambda line: None}


def build_nccl(store: Store, functions: str) -> None:
    """Make the layer again; its inputs and the toolchain are in the store."""
    plan = _plan(functions)
    layer = next(layer for layer in plan.layers if layer.id == "nccl")
    (store.root / "layers" / f"{layer.key}.json").unlink(missing_ok=True)
    needs = survey(store, plan)
    Builder(store, plan, **_quiet()).run(type(needs)((layer,), 0, 0, 0, True))


if __name__ == "__main__":
    build_nccl(Store(Path(sys.argv[1])), sys.argv[2])
