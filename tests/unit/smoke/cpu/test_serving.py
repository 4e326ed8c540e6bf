"""The check `serve-command`: the words that it checks, and vLLM's errors in its message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builder.errors import InvalidError
from builder.model.check import Check
from builder.plan.resolve import resolve
from builder.project import Project
from builder.smoke.check import CheckFailed
from builder.smoke.cpu.run import execution_of
from builder.smoke.plan_checks import checks_of
from tests.support.errors import fails

PROJECT = Project()


def asked(recipe: str, base: str | None = None) -> list[Check]:
    plan = resolve(PROJECT, PROJECT.recipe(recipe), base=base)
    return [check for check in checks_of(plan) if check.kind == "serve-command"]


@pytest.mark.parametrize("base", ["ngc-26.04", "vllm-openai-0.20", "hermetic"])
def test_the_words_after_vllm_serve_are_checked_on_every_family(base: str) -> None:
    (check,) = asked("gpt-oss-120b", base)
    argv = check.args["argv"]
    assert isinstance(argv, list)
    assert argv[:3] == ["openai/gpt-oss-120b", "--served-model-name", "gpt-oss-120b"]
    assert "VLLM_MARLIN_USE_ATOMIC_ADD" in str(check.args["variables"])
    assert execution_of(check).code.startswith("\nimport")


def test_an_entrypoint_that_builds_its_command_is_not_checked() -> None:
    plan = resolve(PROJECT, PROJECT.recipe("gpt-oss-120b"), base="hermetic")
    bare = replace(plan, entrypoint=None, command=())
    assert [check for check in checks_of(bare) if check.kind == "serve-command"] == []


def test_errors_of_vllm_are_in_the_message() -> None:
    made = execution_of(Check(id="a", tier="cpu", kind="serve-command", args={"argv": ["a/b", "--port", "1"]}))
    assert made.judge(0, "\n") == "vLLM's parser accepts all 3 words"
    with pytest.raises(CheckFailed, match="unrecognized arguments: --nope"):
        made.judge(1, "error: unrecognized arguments: --nope\n")


def test_without_a_command_there_is_no_check() -> None:
    with fails(InvalidError, "check-arguments-wrong"):
        execution_of(Check(id="a", tier="cpu", kind="serve-command", args={}))
