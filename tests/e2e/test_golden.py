"""Golden digests of real images, see tests/unit/cli/test_golden.py.

Each run compares one image. With BUILDER_NIGHTLY set, every hermetic recipe is built.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.building import Build, builder, fresh_store
from tests.support.nightly import nightly
from tests.support.project import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.slow]

HERMETIC: dict[str, Any] = json.loads((ROOT / "tests" / "golden" / "hermetic.json").read_text("utf-8"))
LAYERS: dict[str, dict[str, str]] = HERMETIC["layers"]


def differing(store: Path, keys: list[str]) -> dict[str, tuple[str, str]]:
    """The layers whose digest is not the golden one: the golden digest and the digest in the store."""
    found = {key: json.loads((store / "layers" / f"{key}.json").read_text("utf-8"))["digest"] for key in keys}
    return {
        LAYERS[key]["layer"]: (LAYERS[key]["digest"], found[key]) for key in keys if found[key] != LAYERS[key]["digest"]
    }


def test_the_first_image_has_its_golden_digest(first: Build) -> None:
    golden = HERMETIC["recipes"]["nemotron-omni"]
    assert differing(first.store, golden["keys"]) == {}
    assert first.digest == golden["image"]


@nightly
def test_every_hermetic_recipe_has_its_golden_digest(inputs: Path, folder: Path) -> None:
    store = fresh_store(inputs, folder / "golden")
    functions = f"nccl.functions={HERMETIC['nccl_functions']}"
    done = builder("build", "--all", "--base", "hermetic", "--set", functions, "--json", store=store)
    assert done.returncode == 0, done.stderr[-4000:]
    built = {made["recipe"]: made["digest"] for made in json.loads(done.stdout) if made["digest"]}
    assert differing(store, list(LAYERS)) == {}
    # Recipes on hermetic bases from 0.28 on have no golden digest yet.
    golden = {name: golden["image"] for name, golden in HERMETIC["recipes"].items()}
    assert {name: built.get(name) for name in golden} == golden
