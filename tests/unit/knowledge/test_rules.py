"""The rules: each breaks one shipped recipe in one place, is named alone, and can be overridden with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builder.cli.recipe.lint import as_text
from builder.errors import UsageError
from builder.knowledge.families import family_of, has_experts, weights_of
from builder.knowledge.lint import Finding, lint, lint_recipe
from builder.knowledge.rule import all_rules, find_rule
from builder.model.recipe import Recipe
from builder.model.variant import merge, with_profile
from builder.project import Project

PROJECT = Project()
REASON = "measured on the machine at hand"
SPEC = "speculative-config"


def flags(**values: Any) -> dict[str, Any]:
    """A change of serving options; underscores stand for dashes."""
    return {"serve": {"flags": {name.replace("_", "-"): value for name, value in values.items()}}}


def spec(**values: Any) -> dict[str, Any]:
    return flags(speculative_config=values)


def without(layer: str, recipe: str, **more: Any) -> dict[str, Any]:
    """The recipe's layers but for one."""
    uses = [use.model_dump() for use in PROJECT.recipe(recipe).layers if use.layer != layer]
    return {"layers": uses, **more}


def with_layers(recipe: str, **changed: Any) -> dict[str, Any]:
    """The recipe's layers, some with other parameters."""
    uses = PROJECT.recipe(recipe).layers
    return {"layers": [{"layer": use.layer, "set": {**use.set, **changed.get(use.layer, {})}} for use in uses]}


MTP3 = {"method": "mtp", "num_speculative_tokens": 3}
LAGUNA = {"method": "dflash", "model": "poolside/Laguna-XS.2-speculator.dflash", "num_speculative_tokens": 7}

MUTATIONS: list[tuple[str, str, dict[str, Any]]] = [
    # MoE with FP4 weights
    ("GB10-001", "qwen3.6-35b", flags(moe_backend=None)),
    ("GB10-001", "qwen3.6-35b", flags(moe_backend="flashinfer_cutlass")),
    ("GB10-001", "qwen3.5-122b", flags(moe_backend="cutlass")),
    ("GB10-001", "gpt-oss-120b", flags(moe_backend="triton")),
    ("GB10-001", "nemotron-nano-openai", flags(moe_backend="auto")),
    ("GB10-001", "minimax-m2.7-dual", flags(moe_backend=None)),
    ("GB10-001", "nemotron-omni", {"rules": None}),
    # CUDA graphs
    ("GB10-002", "qwen3.5-35b", flags(enforce_eager=True)),
    ("GB10-002", "qwen3-omni", flags(enforce_eager=True)),
    ("GB10-002", "qwen3.5-122b-fp8-dual", flags(enforce_eager=True)),
    ("GB10-002", "qwen3.6-27b", flags(compilation_config={"cudagraph_mode": "none"})),
    ("GB10-002", "minimax-m2.7-dual", {"rules": None}),
    # memory
    ("GB10-003", "qwen3.6-35b", flags(gpu_memory_utilization=0.95)),
    ("GB10-003", "gpt-oss-120b", flags(gpu_memory_utilization=0.91)),
    ("GB10-003", "gemma4-12b-coder", {"rules": None}),
    ("GB10-004", "qwen3.5-35b", flags(gpu_memory_utilization=0.89)),
    ("GB10-004", "qwen3.5-35b", flags(gpu_memory_utilization=None)),
    ("GB10-004", "qwen3.5-122b-fp8-dual", flags(gpu_memory_utilization=0.85)),
    ("GB10-004", "minimax-m2.7-dual", flags(gpu_memory_utilization=0.88)),
    ("GB10-002", "qwen3.5-35b", flags(optimization_level="O0")),
    ("GB10-002", "qwen3.5-35b", flags(compilation_config='{"cudagraph_mode": "none"}')),
    # attention backends
    ("GB10-005", "qwen3.6-35b", flags(attention_backend="FLASHINFER")),
    ("GB10-005", "qwen3.6-35b", flags(attention_backend="flashinfer")),
    ("GB10-006", "gpt-oss-120b", flags(attention_backend=None)),
    ("GB10-006", "nemotron-omni-vision", flags(attention_backend="FLASHINFER")),
    ("GB10-006", "laguna-xs2-dflash", flags(attention_backend="FLASH_ATTN")),
    ("GB10-006", "laguna-xs2-dflash", flags(attention_backend=None)),
    # load formats
    ("GB10-007", "gpt-oss-120b", flags(load_format="fastsafetensors")),
    ("GB10-007", "nemotron-omni-vision", flags(load_format="fastsafetensors")),
    # quantisation
    ("GB10-008", "qwen3.6-35b", flags(quantization=None)),
    ("GB10-008", "gemma4-31b", flags(quantization=None)),
    ("GB10-008", "gemma4-26b", flags(quantization="modelopt_fp4")),
    ("GB10-008", "qwen3.6-27b", flags(quantization="modelopt")),
    ("GB10-008", "qwen3.5-122b", flags(quantization="compressed-tensors")),
    ("GB10-008", "nemotron-super", flags(quantization="modelopt")),
    ("GB10-008", "nemotron-omni", flags(quantization="modelopt_fp4")),
    ("GB10-009", "qwen3.5-35b", flags(quantization="mxfp4")),
    ("GB10-009", "gpt-oss-120b", flags(quantization=None)),
    ("GB10-009", "gpt-oss-120b", flags(quantization="fp8")),
    # KV cache
    ("GB10-010", "laguna-xs2-dflash", flags(kv_cache_dtype="fp8")),
    ("GB10-010", "qwen3.5-122b", flags(kv_cache_dtype="fp8")),
    ("GB10-010", "qwen3.5-35b", flags(kv_cache_dtype="fp8_e4m3")),
    ("GB10-010", "nemotron-omni", flags(kv_cache_dtype="fp8")),
    ("GB10-010", "nemotron-super", flags(kv_cache_dtype="fp8")),
    ("GB10-011", "laguna-xs2-dflash", {"model": {"weights": "int4"}}),
    # requests at once
    ("GB10-012", "qwen3.6-35b", flags(max_num_seqs=16)),
    ("GB10-012", "qwen3.6-35b", flags(max_num_seqs=None)),
    ("GB10-012", "nemotron-omni", flags(max_num_seqs=9)),
    ("GB10-012", "qwen3.5-27b-dflash", flags(speculative_config=None)),
    ("GB10-012", "qwen3.5-35b", flags(max_num_seqs="four")),
    ("GB10-004", "qwen3.5-35b", flags(gpu_memory_utilization="85%")),
    # tools
    ("GB10-013", "qwen3.6-27b", flags(enable_auto_tool_choice=None)),
    ("GB10-013", "qwen3.5-122b", flags(tool_call_parser=None)),
    ("GB10-013", "qwen3-coder-next", flags(tool_call_parser=None, enable_auto_tool_choice=None)),
    # Mamba-2 MoE
    ("GB10-014", "nemotron-super", flags(enable_chunked_prefill=True)),
    ("GB10-014", "nemotron-omni", flags(enable_chunked_prefill=False)),
    # speculation
    ("GB10-015", "laguna-xs2-dflash", spec(**{**LAGUNA, "model": "z-lab/Qwen3.5-9B-DFlash"})),
    ("GB10-016", "qwen3.6-35b", spec(method="mtp", num_speculative_tokens=5)),
    (
        "GB10-015",
        "laguna-xs2-dflash",
        flags(speculative_config=json.dumps({**LAGUNA, "model": "z-lab/Qwen3.5-4B-DFlash"})),
    ),
    ("GB10-016", "qwen3.6-27b", spec(method="mtp")),
    ("GB10-017", "qwen3.6-35b", flags(speculative_disable_by_batch_size=32)),
    ("GB10-018", "qwen3.6-27b", spec(method="suffix", num_speculative_tokens=8)),
    ("GB10-019", "laguna-xs2-dflash", {"model": {"weights": "nvfp4"}, "rules": {"GB10-011": REASON}}),
    ("GB10-029", "laguna-xs2-dflash", spec(**LAGUNA, attention_backend="TRITON_ATTN")),
    ("GB10-029", "laguna-xs2-dflash", spec(**{**LAGUNA, "num_speculative_tokens": 32})),
    ("GB10-029", "laguna-xs2-dflash", spec(**{**LAGUNA, "num_speculative_tokens": "seven"})),
    ("GB10-029", "laguna-xs2-dflash", without("dflash", "laguna-xs2-dflash")),
    ("GB10-034", "gemma4-12b-coder", spec(**MTP3, model="/model/assistant")),
    # what the base's vLLM has
    ("GB10-020", "qwen3.6-35b", {"env": {"VLLM_FP8_MOE_BACKEND": "triton"}}),
    ("GB10-020", "gpt-oss-120b", {"env": {"VLLM_MXFP4_BACKEND": "marlin"}}),
    ("GB10-020", "qwen3.5-35b", {"run": {"env": {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"}}}),
    ("GB10-020", "qwen3.5-35b", {"env": {"TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas"}}),
    ("GB10-021", "qwen3.5-35b", flags(speculative_config="ngram")),
    ("GB10-021", "qwen3.5-35b", flags(media_io_kwargs="{video: 1}")),
    ("GB10-021", "qwen3.6-35b", flags(tool_call_parser="qwen3_xlm")),
    ("GB10-021", "nemotron-omni", flags(linear_backend="marlin")),
    ("GB10-021", "nemotron-omni", flags(reasoning_parser="nano_v3")),
    ("GB10-021", "qwen3.5-35b", flags(max_model_length=1)),
    ("GB10-021", "qwen3.5-35b", flags(kv_cache_dtype="nvfp4_4over6")),
    ("GB10-021", "qwen3.6-27b", spec(method="dspark", num_speculative_tokens=3)),
    ("GB10-021", "qwen3.6-35b", spec(**MTP3, moe_backend="tritone")),
    ("GB10-021", "qwen3.6-35b", spec(**MTP3, tokens=3)),
    ("GB10-021", "qwen3-coder-next", flags(load_format="gguff")),
    ("GB10-022", "qwen3.5-35b", {"base": "vllm-openai-nightly"}),
    # two nodes
    ("GB10-023", "qwen3.5-122b-fp8-dual", {"run": {"network": "bridge"}}),
    ("GB10-023", "minimax-m2.7-dual", without("cluster", "minimax-m2.7-dual")),
    ("GB10-023", "minimax-m2.7-dual", without("ray", "minimax-m2.7-dual")),
    ("GB10-023", "minimax-m2.7-dual", flags(tensor_parallel_size=1)),
    ("GB10-023", "minimax-m2.7-dual", {"run": {"env": {"NCCL_IB_HCA": "rocep1s0f1"}}}),
    ("GB10-023", "qwen3.5-35b", {"env": {"GLOO_SOCKET_IFNAME": "enp1s0f1np1"}}),
    # bases
    ("GB10-025", "qwen3.5-35b", {"base": "vllm-openai-0.19.0"}),
    ("GB10-025", "qwen3.5-35b", {"base": "vllm-openai-0.31.0-aarch64-cu129"}),
    ("GB10-036", "laguna-xs2-dflash", {"layers": ["marlin", "dflash", "ray"], "base": "vllm-openai-0.31.0"}),
    ("GB10-037", "qwen3.5-35b", with_layers("qwen3.5-35b", nccl={"functions": "inference"})),
    ("GB10-037", "minimax-m2.7-dual", with_layers("minimax-m2.7-dual", nccl={"functions": "AllReduce Sum f32 * *"})),
    ("GB10-032", "gemma4-12b-coder", {"serve": {"model": "vllm serve /model"}}),
    # kernels
    ("GB10-030", "qwen3-coder-next", without("marlin", "qwen3-coder-next")),
    ("GB10-031", "qwen3.6-35b", with_layers("qwen3.6-35b", marlin={"flashinfer_moe_fp4": True})),
    ("GB10-031", "gpt-oss-120b", {"env": {"VLLM_USE_FLASHINFER_MOE_FP4": "1"}}),
    ("GB10-031", "gemma4-26b", with_layers("gemma4-26b", marlin={"flashinfer_moe_fp4": True})),
    ("GB10-033", "gemma4-26b", flags(tensor_parallel_size=2)),
    ("GB10-038", "gemma4-31b", flags(enable_expert_parallel=True)),
    ("GB10-038", "qwen3.6-27b", flags(enable_expert_parallel=True)),
    ("GB10-035", "qwen3.5-122b-fp8-dual", without("cutlass-fp8", "qwen3.5-122b-fp8-dual")),
]

# Rules whose scope no shipped base can show alone; they have tests of their own below.
ELSEWHERE = {"GB10-024", "GB10-026", "GB10-027", "GB10-028"}


def mutated(recipe: str, change: dict[str, Any], rules: dict[str, str] | None = None) -> Recipe:
    data = merge(PROJECT.recipe(recipe).model_dump(exclude_unset=True), change)
    data["rules"] = {**data.get("rules", {}), **(rules or {})}
    if change.get("rules", {}) is None:
        data["rules"] = rules or {}
    return Recipe.model_validate(data)


def findings(recipe: Recipe, project: Project = PROJECT) -> list[Finding]:
    return lint_recipe(project, recipe, base=recipe.base, profiles=[None])


def broken(recipe: Recipe, project: Project = PROJECT) -> set[str]:
    return {item.rule.id for item in findings(recipe, project) if item.level != "overridden"}


def test_there_are_at_least_sixty_mutations_and_every_rule_has_one() -> None:
    assert len(MUTATIONS) >= 60
    assert {rule for rule, _, _ in MUTATIONS} | ELSEWHERE == {rule.id for rule in all_rules()}


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
def test_gb10_009_is_not_about_formats_that_vllm_finds_itself(checkpoint: str) -> None:
    change = {"base": "ngc-26.04", "model": {"checkpoint": checkpoint}, **flags(attention_backend="TRITON_ATTN")}
    assert {"GB10-008", "GB10-009"}.isdisjoint(broken(mutated("qwen3-coder-next", change)))


def test_gb10_008_another_modelopt_checkpoint_may_say_so() -> None:
    other = {"model": {"id": "nvidia/Other-NVFP4", "family": None}}
    assert "GB10-008" not in broken(mutated("qwen3.6-35b", other))
    assert "GB10-008" in broken(mutated("qwen3.6-35b", {"model": {**other["model"], "checkpoint": "native"}}))


def test_gb10_006_and_007_know_a_base_of_ones_own_by_its_image(tmp_path: Path) -> None:
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


def test_a_model_is_known_by_its_name_where_the_recipe_does_not_say_what_it_is() -> None:
    """A newcomer's recipe names a model and a base, and copies a command."""
    for name in PROJECT.recipe_names():
        model = PROJECT.recipe(name).model
        assert family_of(model.id) == model.family
        assert weights_of(model.id) in (model.weights, None)
        assert not has_experts(model.id) or model.moe
    bare = {"id": "nvidia/Qwen3.6-35B-A3B-NVFP4", "checkpoint": "modelopt"}
    data = {"name": "mine", "title": "Mine", "model": bare, "base": "hermetic-0.23", "layers": ["marlin"]}
    data["serve"] = {"flags": {"gpu-memory-utilization": 0.85, "max-num-seqs": 4, "attention-backend": "FLASHINFER"}}
    assert broken(Recipe.model_validate(data)) == {"GB10-001", "GB10-005", "GB10-008"}


def test_the_recipe_is_named_where_the_line_is_of_another(tmp_path: Path) -> None:
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


def test_rules_explain_themselves() -> None:
    for rule in all_rules():
        assert all((rule.title, rule.scope, rule.why, rule.fix, rule.source)), rule.id
    assert find_rule("gb10-007").id == "GB10-007"
    with pytest.raises(UsageError):
        find_rule("GB10-999")


def test_lint_on_one_base_looks_at_what_can_be_built_there() -> None:
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
