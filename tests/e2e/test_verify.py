"""A stranger rebuilds the small image from the registry alone, with a real engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.building import SMALL, Builds, builder, fresh_store
from tests.support.nightly import nightly

pytestmark = [pytest.mark.engine, pytest.mark.registry, pytest.mark.slow]


@pytest.mark.parametrize("engine", ["buildah", pytest.param("docker", marks=nightly)])
def test_a_stranger_rebuilds_the_image(
    builds: Builds, small: dict[str, str], registry: str, inputs: Path, folder: Path, engine: str
) -> None:
    target = f"{registry}/team/verified:{engine}"
    done = builder("push", target, *SMALL, store=builds.by_buildah.store, env=small)
    assert done.returncode == 0, done.stderr
    empty = folder / f"stranger-{engine}"
    empty.mkdir()
    words = ("verify", target, "--trust-plan", "--engine", engine, "--offline", "--json")
    done = builder(*words, store=fresh_store(inputs, empty / "store"), env={"BUILDER_PROJECT": str(empty)})
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["image"], report["verdict"]) == (builds.by_buildah.digest, "identical")
    assert {"hello", "config", "manifest"} <= {part["part"] for part in report["parts"]}
