"""Golden keys and digests: no image changes without a change of the files in tests/golden.

A layer key is a hash of all that a layer is made from. Another key therefore means another plan (a template, a lock, a
parameter, the format of keys). Another digest under the same key means that a producer, the normaliser or the
compressor writes other bytes: that is a bug, or a new format number in `builder.oci.format` or `builder.unpack`.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.support.cli import run_here
from tests.support.project import ROOT
from tests.unit.cli.conftest import Cli

GOLDEN = ROOT / "tests" / "golden"
HERMETIC: dict[str, Any] = json.loads((GOLDEN / "hermetic.json").read_text("utf-8"))
SAMPLE: dict[str, Any] = json.loads((GOLDEN / "sample.json").read_text("utf-8"))


@pytest.mark.parametrize("recipe", HERMETIC["recipes"])
def test_layer_keys_of_every_hermetic_recipe(recipe: str) -> None:
    functions = f"nccl.functions={HERMETIC['nccl_functions']}"
    words = ("plan", "--recipe", recipe, "--base", "hermetic", "--set", functions, "--json")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BUILDER_")}
    done = run_here(words, environ=environment, folder=ROOT)
    assert done.code == 0, done.err
    planned = json.loads(done.out)
    golden = HERMETIC["recipes"][recipe]
    assert planned["base"]["name"] == golden["base"]
    expected = {HERMETIC["layers"][key]["layer"]: key for key in golden["keys"]}
    found = {layer["id"]: layer["key"] for layer in planned["layers"] if layer["key"]}
    changed = [name for name in {**expected, **found} if expected.get(name) != found.get(name)]
    assert not changed, f"{recipe}: what these layers are made from has changed: {', '.join(changed)}"


def test_layer_keys_of_the_sample(cli: Cli) -> None:
    planned = json.loads(cli("plan", "--recipe", "tiny", "--json").out)
    assert {layer["id"]: layer["key"] for layer in planned["layers"] if layer["key"]} == SAMPLE["keys"]


def test_digests_of_the_sample(online: Cli) -> None:
    built = json.loads(online("build", "--recipe", "tiny", "--json").out)
    digests = {layer["id"]: layer["digest"] for layer in built["layers"] if layer["key"]}
    assert (built["digest"], digests) == (SAMPLE["image"], SAMPLE["digests"])
