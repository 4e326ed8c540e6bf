"""The shipped recipes: every row of the hardware's table, on bases that exist, sharing what can be shared."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from builder.errors import PinError
from builder.knowledge.table import load_table
from builder.model.variant import with_profile
from builder.model.yamlfile import parse_yaml
from builder.plan.resolve import resolve
from builder.project import Project
from tests.support.project import ROOT
from tests.support.shipped import RECIPES

PROJECT = Project()

HERMETIC = [name for name in PROJECT.recipe_names() if "hermetic" in " ".join(PROJECT.recipe(name).compatible)]
NEW = (
    "qwen3.8-27b",
    "qwen3.8-27b-dflash2",
    "nemotron-3.5-lightning",
    "nemotron-super-mtpv2",
    "mistral-small-4",
    "laguna-s2",
    "diffusiongemma",
    "muse-glimmer",
)
"""Recipes from public sources of 2026, which need vLLM 0.28 or a newer one."""
SPEEDS = {
    "qwen3.6-35b": "102-125",
    "qwen3.6-27b-dflash": "37.6",
    "qwen3-coder-next": "43",
    "qwen3.5-122b": "16",
    "gemma4-31b": "6",
    "gemma4-26b": "50",
    "nemotron-nano": "56",
    "nemotron-omni": "50",
    "nemotron-super": "22.7-23.7",
    "qwen3.5-27b-dflash": "60 code, 30 prose",
    "minimax-m2.7-dual": "28.8-36.6",
}


@pytest.mark.parametrize("name", RECIPES)
def test_every_row_of_the_table_is_a_recipe(name: str) -> None:
    recipe = PROJECT.recipe(name)
    assert recipe.sources
    assert recipe.model.weights
    assert recipe.model.family
    for base in (recipe.base, *recipe.compatible):
        assert PROJECT.base(base)


@pytest.mark.parametrize(("name", "speed"), SPEEDS.items())
def test_measured_speeds_have_a_source(name: str, speed: str) -> None:
    found = PROJECT.recipe(name).speed
    assert found is not None
    assert (found.tokens_per_second, bool(found.source)) == (speed, True)


@pytest.mark.parametrize("name", HERMETIC)
def test_hermetic_recipes_plan_without_a_registry_and_share_the_base(name: str) -> None:
    plan = resolve(PROJECT, PROJECT.recipe(name), base="hermetic")
    assert plan.base_image is None
    other = "nemotron-omni" if plan.base in ("hermetic-0.20", "hermetic-0.23") else "qwen3.8-27b"
    again = resolve(PROJECT, PROJECT.recipe(other), base=plan.base)
    keys = {layer.id: layer.key for layer in again.layers}
    shared = [layer for layer in plan.layers if layer.id in keys and layer.producer != "config"]
    assert len(shared) >= 16
    assert all(layer.key == keys[layer.id] for layer in shared)


def test_most_recipes_can_be_hermetic() -> None:
    assert set(RECIPES) - set(HERMETIC) == {
        "nemotron-omni-vision",
        "nemotron-nano",
        "gemma4-31b-dflash",
        "gemma4-26b-dflash",
    }


def test_two_hermetic_bases_share_equal_layers() -> None:
    recipe = PROJECT.recipe("nemotron-omni")
    one, other = (resolve(PROJECT, recipe, base=base) for base in ("hermetic-0.20", "hermetic-0.23"))
    keys = {layer.key for layer in one.layers if layer.key} & {layer.key for layer in other.layers if layer.key}
    assert len(keys) >= 12


@pytest.mark.parametrize("name", RECIPES)
def test_every_profile_plans_on_its_base_unless_the_base_is_not_pinned(name: str) -> None:
    recipe = PROJECT.recipe(name)
    for profile in (None, *recipe.profiles):
        try:
            plan = resolve(PROJECT, recipe, profile=profile)
        except PinError as error:
            assert error.id == "base-not-pinned"
        else:
            assert dict(plan.labels).get("org.builder.profile") == profile


@pytest.mark.parametrize("name", RECIPES)
def test_a_profile_that_only_changes_options_shares_every_layer(name: str) -> None:
    recipe = PROJECT.recipe(name)
    if name not in HERMETIC:
        return
    plain = {layer.key for layer in resolve(PROJECT, recipe, base="hermetic").layers}
    for profile, change in recipe.profiles.items():
        if change.layers is None and change.base is None:
            assert {layer.key for layer in resolve(PROJECT, recipe, base="hermetic", profile=profile).layers} == plain


def test_prompt_look_up_can_be_switched_on_everywhere() -> None:
    for name in RECIPES:
        served = with_profile(PROJECT.recipe(name), "ngram", PROJECT.shared_profiles)
        config = served.serve.flags["speculative-config"]
        assert isinstance(config, dict)
        assert config["method"] == "ngram"


def test_every_hermetic_base_has_a_table() -> None:
    for base in PROJECT.bases.values():
        if base.family == "hermetic":
            assert base.vllm is not None
            assert load_table(base.vllm) is not None


@pytest.mark.parametrize("name", NEW)
def test_a_recipe_of_the_field_names_its_source_and_says_that_it_did_not_run_here(name: str) -> None:
    recipe = PROJECT.recipe(name)
    assert any("Not run here" in note for note in recipe.notes)
    assert all(" at " in source for source in recipe.sources), "at a commit"
    assert recipe.model.revision is not None
    assert recipe.speed is not None or any("No speed" in note or "no speed" in note for note in recipe.notes)
    config = recipe.serve.flags.get("speculative-config")
    if isinstance(config, dict) and "model" in config:
        assert f"{config['model']}@{config['revision']}" in recipe.run.downloads


@pytest.mark.parametrize("name", NEW)
def test_a_recipe_of_the_field_has_a_pinned_base_whose_options_are_known(name: str) -> None:
    recipe = PROJECT.recipe(name)
    base = PROJECT.base(recipe.base)
    assert base.pin is not None
    assert base.pin.manifest is not None
    assert base.vllm is not None
    assert load_table(base.vllm) is not None


def test_recipes_for_a_spark_with_64_gb() -> None:
    small = {name for name in RECIPES if PROJECT.recipe(name).memory_gb == 64}
    assert small == {"qwen3.8-27b", "nemotron-3.5-lightning", "diffusiongemma"}
    assert PROJECT.recipe("muse-glimmer").profiles["nvfp4"].memory_gb == 64
    for name in small:
        share = PROJECT.recipe(name).serve.flags["gpu-memory-utilization"]
        assert isinstance(share, float)
        assert share <= 0.8


def test_a_recipe_that_others_extend_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a chain, each recipe parsed all below it again: minutes for twenty files."""
    for number in range(10):
        above = f"r{number - 1}" if number else "qwen3.6-35b"
        text = f"name: r{number}\ntitle: A variant\nextends: {above}\n"
        path = tmp_path / "recipes" / f"r{number}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    parsed: Counter[str] = Counter()

    def counted(text: str, where: str) -> Any:
        parsed[where] += 1
        return parse_yaml(text, where)

    monkeypatch.setattr("builder.project.parse_yaml", counted)
    project = Project((tmp_path, ROOT))
    titles = [project.recipe(f"r{number}").title for number in range(10)]
    assert titles == ["A variant"] * 10
    assert set(parsed.values()) == {1}
