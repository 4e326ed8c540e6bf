"""The rules: a mutation of a shipped recipe breaks exactly one rule, and an override with a reason allows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builder.cli.recipe.lint import as_text
from builder.errors import UsageError
from builder.knowledge.families import family_of, has_experts, weights_of
from builder.knowledge.lint import lint
from builder.knowledge.rule import all_rules, find_rule
from builder.model.recipe import Recipe
from builder.model.variant import with_profile
from builder.project import Project
from tests.support.rule_mutations import MUTATIONS, REASON, UNMUTATED, broken, findings, flags, mutated

PROJECT = Project()
SPEC = "speculative-config"


def test_there_are_at_least_sixty_mutations_and_every_rule_has_one() -> None:
    assert len(MUTATIONS) >= 60
    assert {rule for rule, _, _ in MUTATIONS} | UNMUTATED == {rule.id for rule in all_rules()}


@pytest.mark.parametrize(("rule", "recipe", "change"), MUTATIONS, ids=lambda v: v if isinstance(v, str) else "")
def test_a_mutation_breaks_one_rule_and_no_other(rule: str, recipe: str, change: dict[str, Any]) -> None:
    before = broken(PROJECT.recipe(recipe))
    after = broken(mutated(recipe, change))
    assert rule not in before, "miss: the shipped recipe keeps the rule"
    assert after - before == {rule}, "hit"
    overridden = mutated(recipe, change, {rule: REASON})
    assert rule not in broken(overridden), "override"
    assert {i.reason for i in findings(overridden) if i.rule.id == rule} == {REASON}


def test_no_shipped_recipe_has_an_error_and_every_override_is_needed() -> None:
    found = lint(PROJECT)
    assert [item for item in found if item.level == "error"] == []
    for name in PROJECT.recipe_names():
        recipe = PROJECT.recipe(name)
        used = {item.rule.id for item in found if item.recipe == name and item.reason is not None}
        given = [recipe.rules, *(profile.rules for profile in recipe.profiles.values())]
        assert {id for rules in given for id, reason in rules.items() if reason} == used, name


@pytest.mark.parametrize("name", PROJECT.recipe_names())
def test_a_finding_names_a_line_of_a_file_that_is_there(name: str) -> None:
    for item in lint(PROJECT, [name]):
        lines = (PROJECT.roots[-1] / item.file).read_text("utf-8").splitlines()
        assert 1 <= item.line <= len(lines)


def project_with(tmp_path: Path, base: str, old: str, new: str) -> Project:
    """A project in which one base is changed."""
    text = (PROJECT.roots[-1] / f"recipes/bases/{base}.yaml").read_text("utf-8")
    assert old in text
    folder = tmp_path / "recipes/bases"
    folder.mkdir(parents=True)
    (folder / f"{base}.yaml").write_text(text.replace(old, new))
    return Project((tmp_path, PROJECT.roots[-1]))


def test_gb10_024_the_bare_gemma4_tag_is_refused(tmp_path: Path) -> None:
    project = project_with(tmp_path, "vllm-openai-gemma4-cu130", ":gemma4-cu130", ":gemma4")
    assert "GB10-024" in broken(project.recipe("gemma4-31b"), project)
    assert "GB10-024" not in broken(PROJECT.recipe("gemma4-31b"))


def test_gb10_024_a_moving_tag_with_a_weak_digest(tmp_path: Path) -> None:
    project = project_with(tmp_path, "vllm-openai-nightly-aarch64", "confidence: medium", "confidence: low")
    recipe = mutated("qwen3.5-35b", {"base": "vllm-openai-nightly-aarch64"})
    assert "GB10-024" in broken(recipe, project)
    assert "GB10-024" not in broken(recipe)


@pytest.mark.parametrize(("weights", "needed"), [("fp8", "fp8"), ("int4", "gptq_marlin")])
def test_gb10_009_quantisation_on_ngc(weights: str, needed: str) -> None:
    change = {
        "base": "ngc-26.04",
        "model": {"weights": weights},
        **flags(attention_backend="TRITON_ATTN", quantization=needed),
    }
    assert "GB10-009" not in broken(mutated("qwen3-coder-next", change))
    assert "GB10-009" in broken(mutated("qwen3-coder-next", {**change, **flags(attention_backend="TRITON_ATTN")}))
    assert "GB10-009" not in broken(
        mutated("qwen3-coder-next", {**change, **flags(attention_backend="TRITON_ATTN")}, {"GB10-009": REASON})
    )
    assert "GB10-009" not in broken(PROJECT.recipe("qwen3-coder-next")), "vLLM's own images find it themselves"


@pytest.mark.parametrize("checkpoint", ["compressed-tensors", "modelopt"])
def test_gb10_009_ignores_formats_that_vllm_detects(checkpoint: str) -> None:
    change = {"base": "ngc-26.04", "model": {"checkpoint": checkpoint}, **flags(attention_backend="TRITON_ATTN")}
    assert {"GB10-008", "GB10-009"}.isdisjoint(broken(mutated("qwen3-coder-next", change)))


def test_gb10_008_allows_modelopt_for_other_modelopt_checkpoints() -> None:
    other = {"model": {"id": "nvidia/Other-NVFP4", "family": None}}
    assert "GB10-008" not in broken(mutated("qwen3.6-35b", other))
    assert "GB10-008" in broken(mutated("qwen3.6-35b", {"model": {**other["model"], "checkpoint": "native"}}))


def test_gb10_006_and_007_recognize_a_users_base_by_its_image(tmp_path: Path) -> None:
    project = project_with(tmp_path, "ngc-26.04", "name: ngc-26.04", "name: ours")
    (tmp_path / "recipes/bases/ngc-26.04.yaml").rename(tmp_path / "recipes/bases/ours.yaml")
    change = {"base": "ours", **flags(attention_backend=None, load_format="fastsafetensors")}
    assert {"GB10-006", "GB10-007"} <= broken(mutated("gpt-oss-120b", change), project)


def test_gb10_026_mixed_precision_on_ngc_26_02() -> None:
    change = {"layers": ["marlin"], "base": "ngc-26.02", "model": {"mixed_precision": True}}
    assert "GB10-026" in broken(mutated("qwen3.5-122b", change))
    assert "GB10-026" not in broken(mutated("qwen3.5-122b", {**change, "base": "ngc-26.04"}))
    assert "GB10-026" not in broken(mutated("qwen3.5-122b", change, {"GB10-026": REASON}))


def test_gb10_027_transformers_5_for_qwen3_5_122b() -> None:
    assert "GB10-027" in broken(mutated("qwen3.5-122b", {"base": "vllm-openai-0.18.1"}))
    assert "GB10-027" not in broken(mutated("qwen3.5-122b", {"base": "vllm-openai-0.20"}))
    assert "GB10-027" in broken(mutated("qwen3.5-122b", {"base": "ngc-26.03"})), "older than every table"


def test_gb10_028_a_base_for_driver_590_is_noted() -> None:
    assert "GB10-028" in broken(PROJECT.recipe("nemotron-nano"))
    assert "GB10-028" not in broken(PROJECT.recipe("nemotron-nano-openai"))


def test_family_weights_and_experts_are_detected_from_the_model_name() -> None:
    """A recipe with only the id of its model, a base and copied options gets the findings of that model."""
    for name in PROJECT.recipe_names():
        model = PROJECT.recipe(name).model
        assert family_of(model.id) == model.family
        assert weights_of(model.id) in (model.weights, None)
        assert not has_experts(model.id) or model.moe
    bare = {"id": "nvidia/Qwen3.6-35B-A3B-NVFP4", "checkpoint": "modelopt"}
    data = {"name": "mine", "title": "Mine", "model": bare, "base": "hermetic-0.23", "layers": ["marlin"]}
    data["serve"] = {"flags": {"gpu-memory-utilization": 0.85, "max-num-seqs": 4, "attention-backend": "FLASHINFER"}}
    assert broken(Recipe.model_validate(data)) == {"GB10-001", "GB10-005", "GB10-008"}


def test_a_finding_in_the_file_of_an_extended_recipe_names_the_recipe(tmp_path: Path) -> None:
    texts = [as_text(item) for item in lint(PROJECT, ["nemotron-omni", "nemotron-omni-vision"])]
    inherited = [text for text in texts if "[recipe nemotron-omni-vision]" in text]
    assert inherited
    assert all(text.startswith("recipes/nemotron-omni.yaml:") for text in inherited)
    assert not [text for text in texts if "[recipe nemotron-omni]" in text]


def test_the_line_is_that_of_the_profile() -> None:
    (item,) = [item for item in lint(PROJECT, ["gemma4-31b"]) if item.profile == "throughput"]
    lines = (PROJECT.roots[-1] / item.file).read_text("utf-8").splitlines()
    assert "max-num-seqs: 16" in lines[item.line - 1]


def test_every_profile_of_every_recipe_can_be_applied() -> None:
    for name in PROJECT.recipe_names():
        recipe = PROJECT.recipe(name)
        for profile in (*recipe.profiles, *PROJECT.shared_profiles):
            assert with_profile(recipe, profile, PROJECT.shared_profiles).name == name


def test_every_rule_has_complete_texts() -> None:
    for rule in all_rules():
        assert all((rule.title, rule.scope, rule.why, rule.fix, rule.source)), rule.id
    assert find_rule("gb10-007").id == "GB10-007"
    with pytest.raises(UsageError):
        find_rule("GB10-999")


def test_lint_on_one_base_checks_the_recipes_that_fit_the_base() -> None:
    found = lint(PROJECT, base="hermetic")
    assert {"gemma4-12b-coder", "nemotron-omni"} <= {item.recipe for item in found}
    assert "gemma4-31b-dflash" not in {item.recipe for item in found}, "it has one base, of a registry"
    assert lint(PROJECT, ["gemma4-26b"], base="hermetic") == [], "although its profile ngc is for another base"
    for names, base in ((["gemma4-31b-dflash"], "hermetic"), (None, "nowhere"), (["nemotron-omni"], "nowhere")):
        with pytest.raises(UsageError):
            lint(PROJECT, names, base=base)


def test_sarif_is_for_code_scanning() -> None:
    from builder.cli.recipe.lint import as_sarif

    report = json.loads(json.dumps(as_sarif(lint(PROJECT, ["gemma4-12b-coder"]))))
    (result,) = report["runs"][0]["results"]
    assert result["ruleId"] == "GB10-003"
    assert result["suppressions"][0]["justification"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] > 1
    assert len(report["runs"][0]["tool"]["driver"]["rules"]) == len(all_rules())
