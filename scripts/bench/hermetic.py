"""Measures the build time of the hermetic stack as a multiple of the time of uv, tar and zstd for the same wheels.

    python scripts/bench/hermetic.py [FOLDER]

FOLDER (default: below ~/.cache/builder-tests) needs 20 GB; its contents are removed. Inputs are fetched before
the measurement. The image has all layers except NCCL, so no engine is used. Goal: at most 2.5.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

from builder.inputs.fetch import fetch
from builder.plan.resolve import resolve
from builder.project import Project
from builder.store.store import Store

RECIPE = """\
name: bench
title: The hermetic stack without NCCL
model: {id: none/none}
base: hermetic-0.20
layers: [ptxas, marlin, audio, entrypoint]
serve: {model: none/none}
"""
PLATFORM = ["--python-platform", "aarch64-manylinux_2_39", "--python-version", "3.13", "--only-binary", ":all:"]


def timed(argv: list[str] | str, **env: str) -> float:
    """Run a command; its wall time in seconds. Raises CalledProcessError when it fails."""
    start = time.monotonic()
    shell = isinstance(argv, str)
    subprocess.run(argv, shell=shell, executable="/bin/bash" if shell else None, check=True, env={**os.environ, **env})
    return time.monotonic() - start


def main(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "project" / "recipes").mkdir(parents=True)
    (folder / "project" / "recipes" / "bench.yaml").write_text(RECIPE)
    os.environ["BUILDER_PROJECT"] = str(folder / "project")
    project = Project()
    plan = resolve(project, project.recipe("bench"))
    inputs = list({item.digest: item for layer in plan.layers for item in layer.inputs}.values())
    kept = Store(folder.parent / "inputs")
    fetch(kept, inputs, offline=False, progress=lambda event: None)

    store = Store(folder / "store")
    wheels = folder / "wheels"
    wheels.mkdir()
    installed = [item for layer in plan.layers if layer.layer in ("wheels", "audio") for item in layer.inputs]
    for item in inputs:
        store.blob(item.digest).hardlink_to(kept.blob(item.digest))
    for item in installed:
        (wheels / item.file).hardlink_to(kept.blob(item.digest))

    for blob in inputs:  # Both sides then read from the page cache.
        store.verify(blob.digest)
    ours = timed(
        [sys.executable, "-m", "builder", "build", "--recipe", "bench", "--offline"], BUILDER_STORE=str(store.root)
    )
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    files = [str(path) for path in sorted(wheels.iterdir())]
    target = folder / "target"
    install = [shutil.which("uv") or "uv", "pip", "install", "-q", "--no-deps", "--offline", "--no-index", *PLATFORM]
    install += ["--target", str(target), *files]
    unpack = timed(install, UV_CACHE_DIR=str(folder / "uv"))
    pack = timed(f"set -o pipefail; tar --sort=name -C {target} -cf - . | zstd -q -3 -T0 -o {folder}/reference.tar.zst")
    shutil.rmtree(folder)
    print(f"builder {ours:.1f} s, peak {peak / 1000:.0f} MB; uv {unpack:.1f} s + tar and zstd {pack:.1f} s")
    print(f"ratio {ours / (unpack + pack):.2f}")


if __name__ == "__main__":
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else cache / "builder-tests" / "bench")
