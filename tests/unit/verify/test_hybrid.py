"""Hybrids: the plans between two plans."""

from __future__ import annotations

import random

import pytest

from builder.model.plan import Plan
from builder.plan.bundle import read_bundle, write_bundle
from builder.plan.resolve import resolve
from builder.project import Project
from builder.verify.hybrid import changes, hybrid, packages
from tests.support.project import ROOT


def planned(recipe: str, base: str, **more: object) -> Plan:
    project = Project((ROOT,))
    return resolve(project, project.recipe(recipe), base=base, **more)  # type: ignore[arg-type]


PAIRS = [
    (("nemotron-omni", "hermetic-0.20"), ("nemotron-omni", "hermetic-0.23")),
    (("nemotron-omni", "hermetic-0.20"), ("qwen3.5-122b-fp8-dual", "hermetic-0.23")),
    (("qwen3-omni", "hermetic-0.20"), ("minimax-m2.7-dual", "hermetic-0.23")),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_all_changes_make_the_other_image_and_none_the_first(one: tuple[str, str], other: tuple[str, str]) -> None:
    good, bad = planned(*one), planned(*other)
    found = changes(good, bad)
    assert [layer.key for layer in hybrid(good, bad, ()).layers if layer.key] == [
        layer.key for layer in good.layers if layer.key
    ]
    last = hybrid(good, bad, found)
    assert [layer.key for layer in last.layers if layer.key] == [layer.key for layer in bad.layers if layer.key]
    assert (last.entrypoint, last.command) == (bad.entrypoint, bad.command)
    variables = [[(item.name, item.value, item.prepend) for item in plan.env] for plan in (last, bad)]
    assert variables[0] == variables[1]
    assert changes(last, bad) == ()


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_any_part_of_the_changes_is_a_valid_plan(one: tuple[str, str], other: tuple[str, str]) -> None:
    good, bad = planned(*one), planned(*other)
    found = changes(good, bad)
    choose = random.Random(1)
    for _ in range(10):
        made = choose.sample(found, len(found) // 2)
        plan = hybrid(good, bad, made)
        assert read_bundle(write_bundle(plan), "here") == plan
        # What is left to change is what was not made.
        assert {(item.kind, item.name) for item in changes(plan, bad)} == {
            (item.kind, item.name) for item in found if item not in made
        }


def test_one_wheel_is_taken_from_the_other_plan() -> None:
    good, bad = planned("nemotron-omni", "hermetic-0.20"), planned("nemotron-omni", "hermetic-0.23")
    change = next(item for item in changes(good, bad) if item.name == "compressed-tensors")
    assert (change.kind, change.old, change.new) == ("wheel", "0.15.0.1", "0.17.0")
    versions = {name: item.name for (_, name), (item, *_) in packages(hybrid(good, bad, [change])).items()}
    assert versions["compressed-tensors"] == "compressed-tensors 0.17.0"
    expected = {name: item.name for (_, name), (item, *_) in packages(good).items()}
    assert versions == expected | {"compressed-tensors": "compressed-tensors 0.17.0"}


def test_a_parameter_of_a_compiled_layer_is_a_change_of_that_layer() -> None:
    good = planned("nemotron-omni", "hermetic-0.20")
    bad = planned("nemotron-omni", "hermetic-0.20", sets={"nccl": {"functions": "inference"}})
    assert [(item.kind, item.name, item.section) for item in changes(good, bad)] == [("layer", "nccl", "nccl")]
