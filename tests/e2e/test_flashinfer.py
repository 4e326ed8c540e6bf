"""A module of the real FlashInfer: compiled by both engines, loaded by FlashInfer itself. Only in the nightly job.

Every run compiles a small FlashInfer's module: see small_flashinfer.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.building import Build, builder, copy_links, fresh_store
from tests.support.nightly import nightly
from tests.support.project import write_files

pytestmark = [pytest.mark.engine, pytest.mark.qemu, pytest.mark.slow, nightly]
RECIPE = {
    "name": "norm",
    "title": "A module of FlashInfer",
    "model": {"id": "someone/model"},
    "base": "hermetic-0.20",
    "layers": [{"flashinfer": {"modules": ["norm"]}}, "entrypoint"],
    "serve": {},
}


def layer(done: Any) -> str:
    assert done.returncode == 0, done.stderr[-4000:]
    return str(next(each["digest"] for each in json.loads(done.stdout)["layers"] if each["id"] == "flashinfer"))


def test_flashinfer_loads_a_module_that_both_engines_compile_to_the_same_bytes(
    first: Build, inputs: Path, folder: Path
) -> None:
    env = {"BUILDER_PROJECT": str(write_files(folder / "norm", {"recipes/norm.yaml": RECIPE}))}
    words = ("build", "norm", "--offline", "--json", "--engine")
    other = fresh_store(inputs, folder / "norm-store")
    copy_links(first.store, other, "blobs", "layers")
    made = layer(builder(*words, "buildah", store=first.store, env=env))
    assert layer(builder(*words, "docker", store=other, env=env)) == made
    only = ("--tier", "static", "--tier", "cpu", "--only", "flashinfer-modules", "--only", "flashinfer-loads")
    tested = builder("test", "norm", *only, "--require", "--json", store=first.store, env=env)
    assert tested.returncode == 0, tested.stdout[-4000:] + tested.stderr[-4000:]
    found = {row["id"]: row["status"] for row in json.loads(tested.stdout)["results"]}
    assert found["flashinfer-modules"] == found["flashinfer-loads"] == "pass"
