"""Why a layer has another key, why it is in the image, what it needs and who needs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builder.plan.explain import explain, key_changes
from builder.plan.resolve import resolve
from tests.support.project import Sample, hashed

PLACED = "dockerfiles/layers/placed/layer.yaml"


def wheel(files: dict[str, Any]) -> None:
    files["recipes/locks/tiny-wheels.json"]["wheels"][0] |= hashed(b"another build")


def script(files: dict[str, Any]) -> None:
    files["dockerfiles/layers/compiled/Dockerfile.j2"] += "# more\n"


def context(files: dict[str, Any]) -> None:
    files["dockerfiles/layers/compiled/patch.diff"] = "another patch\n"


def toolchain(files: dict[str, Any]) -> None:
    files["recipes/locks/toolchain-arm64.json"]["packages"][1] |= hashed(b"x")


def source(files: dict[str, Any]) -> None:
    files["recipes/tiny.yaml"]["layers"][0] = {"compiled": {"version": "2.0"}}


def content(files: dict[str, Any]) -> None:
    files[PLACED]["files"][0]["content"] = "other\n"


def order(files: dict[str, Any]) -> None:
    files["recipes/locks/tiny-wheels.json"]["wheels"].reverse()


def title(files: dict[str, Any]) -> None:
    files[PLACED]["title"] = "Another title"


@pytest.mark.parametrize(
    ("change", "layer", "expected"),
    [
        (wheel, "wheels-alpha", {("python", "alpha")}),
        (script, "compiled", {("setting", "Dockerfile")}),
        (context, "compiled", {("file", "layers/compiled/patch.diff")}),
        (toolchain, "compiled", {("toolchain", "arm64 make")}),
        (source, "compiled", {("source", "widget"), ("setting", "Dockerfile")}),
        (content, "placed", {("file", "etc/placed.conf")}),
        (order, "wheels-other", {("setting", "order of inputs")}),
        (title, "placed", set()),
    ],
)
def test_the_part_of_the_key_that_changed(
    small: Sample,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], None],
    layer: str,
    expected: set[tuple[str, str]],
) -> None:
    plans = []
    for name in ("old", "new"):
        project = small.write(tmp_path / name)
        plan = resolve(project, project.recipe("tiny"))
        plans.append((plan, {each.id: each for each in plan.layers}))
        if name == "old":
            change(small.files)
    (old, before), (new, after) = plans
    found = key_changes((old, before[layer]), (new, after[layer]))
    assert {(item.kind, item.name) for item in found} == expected
    # Every layer whose key is another one has a reason, and no other layer has one.
    for name, each in after.items():
        assert bool(key_changes((old, before[name]), (new, each))) == (before[name].key != each.key)


def test_why_and_who(small: Sample, tmp_path: Path) -> None:
    small.files["recipes/other.yaml"] = small.files["recipes/tiny.yaml"] | {"name": "other", "layers": ["placed"]}
    small.files[PLACED]["needs"] = [{"when": {"recipe.layers": "compiled"}, "why": "it reads its files"}]
    small.files["recipes/other.yaml"]["layers"] = ["compiled", "placed"]
    project = small.write(tmp_path)
    plan = resolve(project, project.recipe("tiny"))
    layers = {layer.id: layer for layer in plan.layers}
    placed = explain(project, plan, layers["placed"])
    assert placed.origin == "recipes/tiny.yaml lists it"
    assert (placed.needs, placed.users) == (("the layer compiled",), ("other", "tiny"))
    compiled = explain(project, plan, layers["compiled"])
    assert compiled.needed_by == ("placed",) and any("the toolchain" in text for text in compiled.needs)
    assert "1 source: widget 1.0" in compiled.needs
    root = explain(project, plan, layers["root"])
    assert root.origin == "recipes/bases/tiny.yaml lists it" and root.users == ("tiny (base)",)
