"""The kinds of checks of the gpu tier, and the small model that it serves."""

from __future__ import annotations

from typing import Any

import pytest

from builder.errors import InvalidError
from builder.model.check import Check
from builder.smoke.check import bind_check
from builder.smoke.gpu.run import defaults
from builder.smoke.gpu.small import small
from tests.support.errors import fails
from tests.support.gpu_machine import PROJECT


class TestKinds:
    def test_every_gpu_check_of_the_project_exists_and_has_the_right_arguments(self) -> None:
        from builder.plan.resolve import resolve

        kinds = set()
        for name in PROJECT.recipe_names():
            recipe = PROJECT.recipe(name)
            base = next((each for each in ("hermetic-0.20", "hermetic-0.23") if each in recipe.compatible), recipe.base)
            if PROJECT.base(base).family == "hermetic":
                plan = resolve(PROJECT, recipe, base=base)
                kinds |= {check.kind for check in plan.checks if check.tier == "gpu" and bind_check(check)}
        assert kinds >= {"nccl-all-reduce", "triton-jit", "marlin-moe", "marlin-linear", "nccl-two-nodes"}
        assert all(bind_check(check) for check in defaults())

    @pytest.mark.parametrize(
        ("kind", "args", "id"),
        [
            ("no-such", {}, "check-kind-unknown"),
            ("marlin-moe", {"format": "int3"}, "check-arguments-wrong"),
            ("serve-decode", {"at-most": 1}, "check-arguments-wrong"),
            ("serve-stop", {"within": "x"}, "check-arguments-wrong"),
        ],
    )
    def test_a_wrong_check_is_an_error(self, kind: str, args: dict[str, Any], id: str) -> None:
        with fails(InvalidError, id):
            bind_check(Check(id="x", tier="gpu", kind=kind, args=args))


class TestSmallModel:
    def test_every_base_with_a_table_has_the_options_of_the_small_models_command(self) -> None:
        from builder.knowledge.table import load_table

        seen = 0
        flags = small(PROJECT.recipe("nemotron-omni")).serve.flags
        for name in PROJECT.base_names():
            version = PROJECT.base(name).vllm
            table = load_table(version) if version else None
            if table is None:
                continue
            seen += 1
            unknown = [flag for flag in flags if not table.has_flag(flag)]
            assert not unknown, f"{name}: {unknown}"
        assert seen > 5

    def test_the_bases_requirements_for_every_model_are_kept(self) -> None:
        recipe = PROJECT.recipe("gpt-oss-120b")
        made = small(recipe)
        assert made.serve.flags["attention-backend"] == recipe.serve.flags["attention-backend"] == "TRITON_ATTN"
        assert made.nodes == 1
        assert small(PROJECT.recipe("minimax-m2.7-dual")).nodes == 1
