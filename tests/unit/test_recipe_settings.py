"""The base, the variables and the shared profiles of the shipped recipes, and the drafters that rules know."""

from __future__ import annotations

import pytest

from builder.knowledge.drafters import drafter
from builder.project import Project

PROJECT = Project()


BASES = {
    "nemotron-omni": "vllm-openai-0.20",
    "nemotron-omni-vision": "ngc-26.04",
    "nemotron-nano": "ngc-25.12.post1",
    "qwen3.6-35b": "vllm-openai-0.23.0",
    "qwen3.6-27b": "vllm-openai-0.23.0",
    "gemma4-31b": "vllm-openai-gemma4-cu130",
    "gemma4-26b": "vllm-openai-0.20",
    "gemma4-31b-dflash": "zlab-gemma4-dflash",
    "gemma4-26b-dflash": "zlab-gemma4-dflash",
    "minimax-m2.7-dual": "vllm-openai-0.23.0",
    "gpt-oss-120b": "ngc-26.04",
}


@pytest.mark.parametrize(("recipe", "base"), BASES.items())
def test_base_of_a_recipe(recipe: str, base: str) -> None:
    assert PROJECT.recipe(recipe).base == base


@pytest.mark.parametrize(
    ("recipe", "variables"),
    [
        ("qwen3.6-35b", {"CUTE_DSL_ARCH": "sm_121a", "FLASHINFER_DISABLE_VERSION_CHECK": "1"}),
        ("nemotron-nano", {"VLLM_USE_FLASHINFER_MOE_FP4": "1", "VLLM_FLASHINFER_MOE_BACKEND": "throughput"}),
    ],
)
def test_variables_of_a_recipe(recipe: str, variables: dict[str, str]) -> None:
    assert variables.items() <= PROJECT.recipe(recipe).env.items()


@pytest.mark.parametrize(
    "name",
    [
        "z-lab/Qwen3.5-9B-DFlash",
        "z-lab/Qwen3.5-4B-DFlash",
        "z-lab/Qwen3-8B-DFlash-b16",
        "RedHatAI/gemma-4-31B-it-speculator.dflash",
    ],
)
def test_the_other_drafters_are_known(name: str) -> None:
    found = drafter(name)
    assert found is not None
    assert found.targets


@pytest.mark.parametrize("profile", ["ngram", "expert-parallel"])
def test_shared_profiles(profile: str) -> None:
    assert profile in PROJECT.shared_profiles
