"""Measures the build time of the layer nccl as a multiple of the time of `make src.build` with the same arguments.

    sudo python scripts/bench/nccl.py [ENGINE [FUNCTIONS]]

Needs root, because `make` runs in a chroot of the same toolchain, and 10 GB below ~/.cache/builder-tests. Both sides
unpack the toolchain before the measurement. Goal: at most 1.2.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from builder.engine.interface import host_architecture
from builder.engine.select import select_engine
from builder.plan.resolve import resolve
from builder.produce.build import Builder
from builder.produce.survey import survey, survey_roots
from builder.project import Project
from builder.store.store import Store


def main(engine: str, functions: str) -> None:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "builder-tests"
    project = Project()
    plan = resolve(project, project.recipe("nemotron-omni"), base="hermetic", sets={"nccl": {"functions": functions}})
    kept = Store(cache / "inputs")
    quiet = {"offline": False, "listener": lambda event: None, "log": lambda line: None}
    Builder(kept, plan, engine=lambda: select_engine(engine), **quiet).run(survey_roots(kept, plan))
    toolchain = next(layer for layer in plan.toolchains if layer.id == f"toolchain-{host_architecture()}")
    root_tar = kept.layer(toolchain.key)
    nccl = next(layer for layer in plan.layers if layer.id == "nccl")

    needs = survey(kept, plan)
    needs = type(needs)((nccl,), 0, 0, 0, True)
    (kept.root / "layers" / f"{nccl.key}.json").unlink(missing_ok=True)
    start = time.monotonic()
    Builder(kept, plan, engine=lambda: select_engine(engine), **quiet).run(needs)
    ours = time.monotonic() - start

    folder = cache / "bench-nccl"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    subprocess.run(["tar", "-xf", str(kept.blob(root_tar.digest)), "-C", str(folder)], check=True)
    (folder / "src").mkdir()
    source = kept.blob(nccl.inputs[0].digest)
    subprocess.run(["tar", "-xzf", str(source), "-C", str(folder / "src")], check=True)
    # The RUN instruction with `make` in the layer's Dockerfile has the arguments.
    text = nccl.dockerfile.replace("\\\n", " ")
    line = next(line for line in text.splitlines() if line.startswith("RUN") and " make " in line)
    command = f"cd /src && mv nccl-* nccl && {line.removeprefix('RUN ')}"
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    env = {"PATH": path, "LC_ALL": "C", "JOBS": str(os.cpu_count())}
    mounts = f"mount --bind /dev {folder}/dev && mount -t proc proc {folder}/proc"
    inner = f"{mounts} && exec chroot {folder} sh -ec {shlex.quote(command)}"
    start = time.monotonic()
    subprocess.run(["unshare", "-m", "sh", "-ec", inner], check=True, env=env, stdout=subprocess.DEVNULL)
    plain = time.monotonic() - start
    shutil.rmtree(folder)
    print(f"builder {ours:.1f} s with {engine}, plain make {plain:.1f} s\nratio {ours / plain:.2f}")


if __name__ == "__main__":
    main(
        sys.argv[1] if len(sys.argv) > 1 else "auto", sys.argv[2] if len(sys.argv) > 2 else "AllReduce Sum f32 RING LL"
    )
