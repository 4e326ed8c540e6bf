"""MAX_JOBS: how many compilers may run beside the model, from what vLLM leaves of the memory."""

from __future__ import annotations

from typing import Any

import pytest

from builder.model.recipe import Recipe
from builder.plan.imageconfig import JOBS, compile_jobs
from builder.plan.resolve import resolve
from builder.project import Project


@pytest.mark.parametrize(
    ("share", "memory", "jobs"),
    [(0.85, 128, 3), (0.8, 128, 4), (None, 128, 2), (0.4, 128, 12), (0.05, 128, 20), (0.99, 128, 1), (0.85, 64, 1)],
)
def test_each_compiler_counts_six_gigabytes(share: float | None, memory: int, jobs: int) -> None:
    flags = {} if share is None else {"gpu-memory-utilization": share}
    data: dict[str, Any] = {"name": "r", "title": "t", "model": {"id": "a/b"}, "base": "b", "memory_gb": memory}
    assert compile_jobs(Recipe.model_validate({**data, "serve": {"flags": flags}})) == jobs


@pytest.mark.parametrize("base", ["hermetic", "vllm-openai-0.20"])
def test_every_image_with_a_compiler_has_the_limit_and_a_recipe_can_set_its_own(base: str) -> None:
    project = Project()
    recipe = project.recipe("nemotron-omni")
    assert [each.value for each in resolve(project, recipe, base=base).env if each.name == JOBS] == ["4"]
    own = recipe.model_copy(update={"env": {JOBS: "2"}})
    assert [each.value for each in resolve(project, own, base=base).env if each.name == JOBS][-1] == "2"
    low = resolve(project, recipe, base=base, profile="low-memory")
    assert [each.value for each in low.env if each.name == JOBS] == ["6"]
