"""`builder build --all` builds each recipe that can be built and names the others; only a failed build is an error."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support.cli import Cli
from tests.support.project import vendor_base

ALL = ("build", "--all", "--base", "tiny")


def recipe(like: dict[str, Any], name: str, **more: Any) -> dict[str, Any]:
    return {**like, "name": name, "title": name, **more}


@pytest.fixture
def several(online: Cli) -> Cli:
    """tiny; one more on its base with a layer of its own; one on a vendor's base only; one whose base is not pinned."""
    files = online.small.files
    tiny = files["recipes/tiny.yaml"]
    files["dockerfiles/layers/more/layer.yaml"] = {
        "name": "more",
        "title": "More",
        "producer": "files",
        "parameters": {"word": {"type": "text", "pattern": "[a-z]+", "default": "more", "help": "word"}},
        "files": [{"path": "opt/more/{{ params.word }}", "content": "more\n"}],
    }
    files["recipes/second.yaml"] = recipe(tiny, "second", layers=["more", *tiny["layers"]])
    files["recipes/bases/vendor.yaml"] = vendor_base("registry.example/team/vendor:1", "sha256:" + "1" * 64)
    files["recipes/elsewhere.yaml"] = recipe(tiny, "elsewhere", base="vendor", layers=["entrypoint"])
    unpinned = vendor_base("registry.example/team/open:1", "sha256:" + "1" * 64)
    files["recipes/bases/open.yaml"] = {**unpinned, "name": "open", "pin": {"image": "registry.example/team/open:1"}}
    files["recipes/unpinned.yaml"] = recipe(tiny, "unpinned", base="open", layers=["entrypoint"])
    return online


def test_recipes_that_cannot_be_built_are_skipped_with_a_reason(several: Cli) -> None:
    said = several(*ALL)
    assert said.code == 0
    assert [line.split()[1] for line in said.out.splitlines()] == ["second", "tiny"]
    assert "left out: elsewhere: recipe elsewhere does not run on base 'tiny': it runs on vendor" in said.err
    assert "left out: unpinned: recipe unpinned does not run on base 'tiny'" in said.err
    assert "left out: gemma4-31b: " in said.err, "the bundled recipes are planned as well"
    left = said.err.count("left out: ")
    assert f"2 of {left + 2} recipes built" in said.err
    assert "2 recipes, all together: 5 layers to build; " in said.err
    assert f"5 distinct layers, 5 of them new; {left} left out" in said.err


def test_the_second_recipe_on_a_base_makes_only_its_own_layers(several: Cli) -> None:
    several("build", "--recipe", "tiny")
    rows = {row["recipe"]: row for row in json.loads(several(*ALL, "--json").out)}
    built = [(name, i["id"]) for name, row in rows.items() for i in row.get("layers", ()) if i["state"] == "built"]
    assert built == [("second", "more")]
    assert rows["tiny"]["digest"]
    assert rows["elsewhere"]["digest"] is None
    assert "does not run" in rows["elsewhere"]["left_out"]


def test_all_without_a_recipe_that_fits_is_an_error(several: Cli) -> None:
    said = several("build", "--all", "--base", "open")
    said.failed(4, "base-not-pinned")


def test_settings_reach_the_recipes_that_have_the_layer_and_no_others(several: Cli) -> None:
    said = several(*ALL, "--set", "more.word=less")
    assert said.code == 0
    assert said.out.splitlines()[1] == several(*ALL).out.splitlines()[1]
    assert said.out.splitlines()[0] != several(*ALL).out.splitlines()[0]
    assert several(*ALL, "--set", "nope.word=less").code == 2
    assert several(*ALL, "--set", "word").code == 2


def test_a_base_that_does_not_exist_is_wrong_usage(several: Cli) -> None:
    several("build", "--all", "--base", "nowhere").failed(2, "name-unknown")


def test_a_failed_recipe_sets_the_exit_code_and_the_others_are_built(several: Cli) -> None:
    lock = several.small.files["recipes/locks/tiny-wheels.json"]
    wheel = {**lock["wheels"][0], "file": "lost-1.0-py3-none-any.whl", "name": "lost"}
    lost = {**lock, "name": "lost", "wheels": [wheel]}
    several.small.files["recipes/locks/lost.json"] = lost
    layer = {"name": "broken", "title": "B", "producer": "files", "inputs": {"wheels": [{"lock": "lost"}]}}
    several.small.files["dockerfiles/layers/broken/layer.yaml"] = layer
    tiny = several.small.files["recipes/tiny.yaml"]
    several.small.files["recipes/broken.yaml"] = recipe(tiny, "broken", layers=["broken", "entrypoint"])
    said = several(*ALL)
    assert said.code in (4, 6)
    assert [line.split()[1] for line in said.out.splitlines()] == ["second", "tiny"]
    assert "1 recipe was not built: broken" in said.err
    assert re.search(r"2 of \d+ recipes built", said.err)


def test_a_recipe_that_names_the_base_but_does_not_fit_it_is_an_error(several: Cli) -> None:
    layer = several.small.files["dockerfiles/layers/more/layer.yaml"]
    layer["needs"] = [{"when": {"base.nccl": "known"}, "why": "where libnccl lies is not known"}]
    several(*ALL).failed(2, "layer-needs-unmet")
