"""`list` and `show`: the facts about a recipe before it is built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builder.guide.summary import base_facts, recipe_summary
from builder.project import Project
from tests.support.cli import Cli

PROJECT = Project((Path(__file__).resolve().parents[3],))


@pytest.mark.parametrize("name", PROJECT.recipe_names())
def test_a_summary_has_all_facts(name: str) -> None:
    recipe = PROJECT.recipe(name)
    text = " ".join(recipe_summary(PROJECT, recipe).split())
    model = recipe.model
    said = [model.id, model.parameters, model.quantization, *model.modalities, recipe.base, *recipe.profiles]
    said += recipe.notes
    said += [use.layer for use in recipe.layers] + [*recipe.rules, *recipe.rules.values(), *recipe.sources]
    said += [recipe.speed.tokens_per_second, recipe.speed.source] if recipe.speed else ["speed not measured"]
    assert not [word for word in said if word and " ".join(word.split()) not in text]
    assert f"nodes {recipe.nodes}" in text
    assert max(len(line) for line in recipe_summary(PROJECT, recipe).splitlines()) <= 140


def test_a_shared_profile_is_shown_where_it_can_be_used() -> None:
    assert "expert-parallel:" in recipe_summary(PROJECT, PROJECT.recipe("qwen3.6-35b"))
    dense = recipe_summary(PROJECT, PROJECT.recipe("gemma4-31b"))
    assert "ngram:" in dense
    assert "expert-parallel:" not in dense, "it has no experts"


def test_a_summary_has_the_status_of_every_base() -> None:
    text = recipe_summary(PROJECT, PROJECT.recipe("qwen3.6-35b"))
    assert "vllm-openai-0.23.0: vLLM 0.23.0; not pinned: only the digest of its index is known" in text
    assert "vllm-openai-0.24.0: vLLM 0.24.0; pinned, confidence high" in text
    assert "hermetic-0.23: vLLM 0.23.0; made here from the lock" in text
    assert "next: builder build --recipe qwen3.6-35b --base vllm-openai-0.24.0" in text
    nano = recipe_summary(PROJECT, PROJECT.recipe("nemotron-nano"))
    assert "ngc-25.12.post1: vLLM of unknown version; not pinned; options are not checked" in nano
    assert "builder lock --update ngc-25.12.post1" in nano


def test_the_json_output_has_the_same_facts() -> None:
    assert base_facts(PROJECT, PROJECT.recipe("gpt-oss-120b"))[0] == {
        "name": "ngc-26.04",
        "vllm": "0.19.0",
        "pin": "pinned, confidence medium",
        "buildable": True,
        "options_checked": True,
    }


def test_the_commands(cli: Cli) -> None:
    assert cli("show", "tiny").out.startswith("tiny: Tiny\n  model       someone/tiny\n")
    assert json.loads(cli("show", "tiny", "--json").out)["bases"][0]["pin"] == "made here from the lock"
    rows = {row["name"]: row for row in json.loads(cli("list", "--json").out)}
    assert rows["tiny"]["builds_on"] == ["tiny"]
    assert rows["nemotron-super"]["speed"] == "22.7-23.7 tok/s"
    for word in ("MEMORY GB", "BUILDS ON", "SPEED"):
        assert word in cli("list").out
    assert "producer: files" in cli("show", "placed").out


def test_a_base_is_shown_by_its_alias_and_a_family_by_its_bases(cli: Cli) -> None:
    ngc = [base.name for base in PROJECT.bases.values() if base.family == "ngc"]
    assert [row["name"] for row in json.loads(cli("show", "ngc", "--json").out)] == ngc
    assert all(name in cli("show", "ngc").out for name in ngc)
    assert PROJECT.find_bases("hermetic") == [PROJECT.base("hermetic-0.20")]
    for base in PROJECT.bases.values():
        assert all(PROJECT.find_bases(name) == [base] for name in (base.name, *base.aliases))
    assert cli("show", "vllm-openai-0.20").out.startswith("name: vllm-openai-0.20")
    said = cli("show", "ngcc")
    said.failed(2, "name-unknown")
    assert "ngc or " in said.err


def test_an_invalid_file_does_not_hide_the_other_files(cli: Cli) -> None:
    cli.small.files["recipes/one.yaml"] = "name: one\nmodel: [\n"
    cli.small.files["recipes/two.yaml"] = "name: two\ncolour: red\n"
    said = cli("list", "--json")
    assert said.code == 3
    rows = [row["name"] for row in json.loads(said.out)]
    assert "tiny" in rows
    assert "nemotron-omni" in rows
    assert not {"one", "two"} & set(rows)
    assert "recipes/one.yaml" in said.err
    assert "recipes/two.yaml" in said.err
    assert "tiny" in cli("list").out
