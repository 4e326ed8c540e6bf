"""The digest of an image with a compiled layer is a golden one, see tests/unit/cli/test_golden.py."""

from __future__ import annotations

import json

from tests.support.fixtures import MakePlan
from tests.support.mirror import Mirror
from tests.support.project import ROOT
from tests.unit.produce.conftest import Runner

SAMPLE = json.loads((ROOT / "tests" / "golden" / "sample.json").read_text("utf-8"))


def test_the_digest_of_an_image_with_a_compiled_layer(runner: Runner, make_plan: MakePlan, mirror: Mirror) -> None:
    assert runner.build(make_plan()).image.digest == SAMPLE["compiled"]
