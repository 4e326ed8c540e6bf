"""Facts by version: each row of the field's table, on both sides of its version; and how facts.yaml reads."""

from __future__ import annotations

from typing import Any

import pytest

from builder.knowledge.facts import Fact, facts
from builder.knowledge.lint import lint_recipe
from builder.knowledge.rule import all_rules
from builder.knowledge.table import load_table, versions
from builder.model.recipe import Recipe
from builder.project import Project
from tests.support.rule_mutations import DEEPSEEK, LAGUNA, QWEN27, broken, flags, mutated, spec

PROJECT = Project()
FLASHINFER = flags(attention_backend="FLASHINFER", speculative_config=None)
FP8 = flags(kv_cache_dtype="fp8")
GPT = flags(attention_backend="TRITON_ATTN", moe_backend=None)

ROWS: list[tuple[str, str, str, dict[str, Any], tuple[str, ...], tuple[str, ...]]] = [
    # row; rule; recipe; change; versions of vllm-openai that break the rule; versions that do not
    ("dense NVFP4 until 0.29", "GB10-042", "qwen3.6-27b", {}, ("0.28.0", "0.29.0"), ("0.24.0", "0.30.0", "0.31.0")),
    ("XQA from 0.28", "GB10-043", "qwen3.6-27b", FP8, ("0.28.0", "0.30.0"), ("0.24.0", "0.27.1")),
    ("memory while loading", "GB10-044", "nemotron-super", {"model": {"memory_gb": 75}}, ("0.23.0",), ("0.24.0",)),
    ("Gemma 4 on 0.27.1", "GB10-045", "gemma4-31b", {}, ("0.27.1",), ("0.27.0", "0.28.0", "0.20")),
    ("muse_glimmer", "GB10-046", "qwen3.5-35b", {"model": {"family": "muse-glimmer"}}, ("0.27.1",), ("0.28.0",)),
    ("deepseek_v41", "GB10-046", "qwen3.5-35b", {"model": {"family": "deepseek-v4.1"}}, ("0.29.0",), ("0.30.0",)),
    ("qwen4_exp", "GB10-046", "qwen3.5-35b", {"model": {"family": "qwen3.8-flash-next"}}, ("0.28.0",), ("0.29.0",)),
    ("PTX 9.1", "GB10-047", "qwen3.5-35b", flags(gdn_prefill_backend="flashinfer"), ("0.26.0",), ("0.27.0", "0.30.0")),
    ("DeepSeek V4 on 0.28", "GB10-049", "qwen3.5-122b-fp8-dual", DEEPSEEK, ("0.28.0",), ("0.27.1", "0.29.0")),
    ("gpt-oss without Marlin", "GB10-001", "gpt-oss-120b", GPT, ("0.20", "0.23.0"), ("0.28.0", "0.30.0")),
    ("FlashInfer attention", "GB10-005", "qwen3.6-35b", FLASHINFER, ("0.23.0", "0.27.1"), ("0.28.0", "0.31.0")),
    ("sliding windows", "GB10-041", "qwen3.6-27b-dflash", spec(**QWEN27), ("0.24.0", "0.25.1"), ("0.26.0", "0.30.0")),
    ("drafter's backend", "GB10-040", "laguna-xs2-dflash", spec(**LAGUNA), ("0.26.0", "0.31.0"), ("0.23.0", "0.24.0")),
]


def on(recipe: str, change: dict[str, Any], version: str) -> set[str]:
    return broken(mutated(recipe, {"rules": None, **change, "base": f"vllm-openai-{version}"}))


@pytest.mark.parametrize(("row", "rule", "recipe", "change", "bad", "good"), ROWS, ids=[row[0] for row in ROWS])
def test_a_fact_holds_for_its_versions_only(
    row: str, rule: str, recipe: str, change: dict[str, Any], bad: tuple[str, ...], good: tuple[str, ...]
) -> None:
    assert [version for version in bad if rule not in on(recipe, change, version)] == []
    assert [version for version in good if rule in on(recipe, change, version)] == []


@pytest.mark.parametrize(("version", "breaks"), [("0.27.1", True), ("0.28.0", False), ("0.30.0", False)])
def test_a_dflash2_drafter_needs_0_28(version: str, breaks: bool) -> None:
    drafted = {"method": "dflash", "model": "z-lab/Qwen3.8-27B-DFlash2", "num_speculative_tokens": 8}
    change = {"model": {"id": "nvidia/Qwen3.8-27B-NVFP4", "family": "qwen3.8-27b"}, **spec(**drafted)}
    assert ("GB10-041" in on("qwen3.6-27b-dflash", change, version)) == breaks


def test_ngc_keeps_its_entrypoint_and_other_bases_may_have_a_wrapper() -> None:
    change = {"serve": {"wrapper": "/opt/dflash/serve"}}
    assert "GB10-048" in broken(mutated("gpt-oss-120b", {**change, "base": "ngc-26.08"}))
    assert "GB10-048" not in broken(mutated("gpt-oss-120b", {**change, "base": "vllm-openai-0.20"}))


def test_a_report_about_gpt_oss_is_a_note() -> None:
    (fact,) = [fact for fact in facts() if fact.id == "GB10-050"]
    assert fact.severity == "note"
    assert "44 minutes" in fact.why


def test_marlin_is_still_asked_of_other_fp4_models_on_new_versions() -> None:
    assert "GB10-001" in on("qwen3.6-35b", flags(moe_backend=None), "0.30.0")


def test_a_bfloat16_cache_allows_a_checkpoint_with_an_fp8_cache() -> None:
    fp8 = {"model": {"kv_cache": "fp8"}}
    assert "GB10-011" in broken(mutated("qwen3.6-27b", fp8))
    assert "GB10-011" not in broken(mutated("qwen3.6-27b", {**fp8, **flags(kv_cache_dtype="bfloat16")}))
    laguna = {"model": {"weights": "int4"}, **flags(kv_cache_dtype="bfloat16")}
    assert "GB10-011" not in broken(mutated("laguna-xs2-dflash", laguna))


@pytest.mark.parametrize(
    ("method", "cache", "breaks"),
    [("mtp", "fp8_e4m3", False), ("gemma4_mtp", "fp8", False), ("gemma4_mtp", "auto", True), ("ngram", "auto", False)],
)
def test_the_coders_drafter_takes_every_fp8_cache(method: str, cache: str, breaks: bool) -> None:
    drafted = {"method": method, "model": "/model/assistant", "num_speculative_tokens": 3}
    change = flags(speculative_config=drafted, kv_cache_dtype=cache)
    assert ("GB10-034" in broken(mutated("gemma4-12b-coder", change))) == breaks


def lint(recipe: Recipe, machine: int) -> set[str]:
    found = lint_recipe(PROJECT, recipe, base=recipe.base, profiles=[None], machine=machine)
    return {item.rule.id for item in found if item.level == "error"}


def test_a_machine_with_64_gb_is_too_small_for_recipes_for_128() -> None:
    recipe = PROJECT.recipe("qwen3.6-35b")
    assert lint(recipe, 128) == set()
    assert lint(recipe, 64) == {"GB10-053", "GB10-055"}
    assert lint(mutated("qwen3.6-35b", flags(gpu_memory_utilization=0.8)), 64) == {"GB10-055"}
    assert lint(mutated("qwen3.6-35b", {"memory_gb": 64, **flags(gpu_memory_utilization=0.8)}), 64) == set()


def case(**when: Any) -> Fact:
    texts = dict.fromkeys(("title", "scope", "why", "fix", "source"), "x")
    cases = [{"when": when, "message": "{flag.max-num-seqs} of {nodes}", "at": "serve/flags"}]
    return Fact.model_validate({"id": "GB10-999", "severity": "note", "cases": cases, **texts})


@pytest.mark.parametrize(
    ("subject", "expected", "holds"),
    [
        ("flag.max-num-seqs", ">=4", True),
        ("flag.max-num-seqs", "<4", False),
        ("flag.max-num-batched-tokens", "<flag.max-model-len", True),
        ("flag.max-num-batched-tokens", ">flag.no-such-option", False),
        ("flag.quantization", "MODELOPT", True),
        ("flag.quantization", "model*", True),
        ("flag.quantization", {"not": "fp8"}, True),
        ("flag.quantization", ["fp8", "modelopt"], True),
        ("flag.load-format", "unset", True),
        ("flag.load-format", "set", False),
        ("flag.async-scheduling", True, True),
        ("spec.num_speculative_tokens", ">3", False),
        ("env.CUTE_DSL_ARCH", "sm_121a", True),
        ("layer.marlin", "set", True),
        ("layer.ray", "set", False),
        ("base.vllm", ">=0.23,<0.24", True),
        ("base.vllm", "known", True),
        ("base.name", "vllm-openai-0.23.0", True),
        ("model.weight_gb", ">18.5", True),
        ("machine.memory_gb", 128, True),
        ("nodes", 1, True),
    ],
)
def test_a_case_of_a_fact(subject: str, expected: Any, holds: bool) -> None:
    from builder.knowledge.lint import subject as subject_of

    recipe = PROJECT.recipe("qwen3.6-35b")
    found = list(case(**{subject: expected}).check(subject_of(PROJECT, recipe, PROJECT.base(recipe.base))))
    assert [problem.message for problem in found] == (["4 of 1"] if holds else [])


def test_every_subject_of_facts_yaml_is_read() -> None:
    """A misspelt subject would raise, or never hold: each case is checked on every recipe."""
    for name in PROJECT.recipe_names():
        lint_recipe(PROJECT, PROJECT.recipe(name))
    tables = (load_table(version) for version in versions())
    options = {flag for table in tables if table for flag in table.flags}
    for fact in facts():
        for one in fact.cases:
            for subject in one.when:
                kind, _, option = subject.partition(".")
                assert kind != "flag" or option in options or fact.id == "GB10-017", subject


def test_ids_are_in_order_and_used_once() -> None:
    ids = [fact.id for fact in facts()]
    assert ids == sorted(set(ids))
    assert len(all_rules()) >= len(ids)
