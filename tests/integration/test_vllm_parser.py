"""Every serving command of the hermetic bases is accepted by vLLM itself: the same version's wheel for this machine.

vLLM's compiled parts are not needed to parse a command line. `tests.support.vllm_wheels` says what is installed.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from builder.knowledge.table import load_table
from builder.model.variant import with_profile
from builder.plan.resolve import resolve
from builder.project import Project
from builder.smoke.cpu.serving import PROGRAM
from builder.smoke.plan_checks import checks_of
from tests.support.nightly import nightly_but
from tests.support.vllm_wheels import cuda_vllm

pytestmark = [pytest.mark.slow]

PROJECT = Project()
BASES = {name: str(base.vllm) for name, base in PROJECT.bases.items() if base.family == "hermetic"}
Case = tuple[str, str | None]


def cases(base: str) -> list[Case]:
    """Every recipe with every profile, the shared ones too, that is served on this base."""
    found: list[Case] = []
    for name in PROJECT.recipe_names():
        recipe = PROJECT.recipe(name)
        for profile in dict.fromkeys((None, *recipe.profiles, *PROJECT.shared_profiles)):
            served = with_profile(recipe, profile, PROJECT.shared_profiles)
            if base in (served.base, *served.compatible):
                found.append((name, profile))
    return found


def command(base: str, case: Case) -> dict[str, Any]:
    """The words after `vllm serve` and the variables of the image, and those that `run` adds."""
    name, profile = case
    plan = resolve(PROJECT, PROJECT.recipe(name), base=base, profile=profile)
    (check,) = [check for check in checks_of(plan) if check.kind == "serve-command"]
    served = with_profile(PROJECT.recipe(name), profile, PROJECT.shared_profiles)
    return {"argv": check.args["argv"], "variables": [*check.args["variables"], *served.run.env]}  # type: ignore[misc]


BROKEN = {
    "an option that it does not have": ["--speculative-disable-by-batch-size", "32"],
    "a value that it does not have": ["--moe-backend", "garbage"],
    "a number that is none": ["--max-num-seqs", "few"],
    "JSON that is none": ["--speculative-config", "{method: mtp}"],
    "a key that it does not have": ["--speculative-config", '{"method":"mtp","tokens":1}'],
    "a method that it does not have": ["--speculative-config", '{"method":"no_such","num_speculative_tokens":1}'],
    "a tool parser that it does not have": ["--enable-auto-tool-choice", "--tool-call-parser", "qwen3_xlm"],
    "no tool parser": ["--enable-auto-tool-choice"],
    "a reasoning parser that it does not have": ["--reasoning-parser", "nano_v3"],
    "an attention backend that it does not have": ["--attention-backend", "TRITON"],
    "a quantization that it does not have": ["--quantization", "mxfp5"],
    "a compilation mode that it does not have": ["--compilation-config", '{"cudagraph_mode":"SOME"}'],
}


@pytest.fixture(scope="module", params=nightly_but(BASES, "hermetic-0.20"))
def base(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def answers(base: str) -> dict[str, list[str]]:
    """vLLM's errors for every case and every broken command, from one interpreter."""
    asked = {str(case): command(base, case) for case in cases(base)}
    asked |= {what: {"argv": ["a/b", *words], "variables": []} for what, words in BROKEN.items()}
    asked["a variable"] = {"argv": ["a/b"], "variables": ["VLLM_FP8_MOE_BACKEND", "VLLM_MARLIN_USE_ATOMIC_ADD"]}
    program = f"{PROGRAM}\nimport json, sys\n"
    program += "asked = json.load(sys.stdin)\n"
    program += "found = {key: problems(**value) for key, value in asked.items()}\n"
    program += "found['options'] = [*make_parser()._option_string_actions]\n"
    program += "print('RESULT', json.dumps(found))\n"
    found: dict[str, list[str]] = ask(base, program, json.dumps(asked))
    return found


def ask(base: str, program: str, given: str = "") -> Any:
    """The JSON that a program prints after RESULT, in the interpreter that has the base's vLLM."""
    env = {"PATH": os.environ["PATH"], "HOME": str(Path.home()), "VLLM_LOGGING_LEVEL": "ERROR"}
    argv = [cuda_vllm(BASES[base]), "-c", program]
    done = subprocess.run(argv, input=given, env=env, capture_output=True, text=True, check=False, timeout=600)
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
    assert line, done.stderr[-3000:]
    return json.loads(line.removeprefix("RESULT "))


def test_vllm_accepts_every_serving_command(base: str, answers: dict[str, list[str]]) -> None:
    every = cases(base)
    # No recipe names the newest base yet.
    assert len(every) > 40 or base == "hermetic-0.33"
    assert {case: answers[str(case)] for case in every if answers[str(case)]} == {}


@pytest.mark.parametrize("what", BROKEN)
def test_vllm_refuses_unknown_names(answers: dict[str, list[str]], what: str) -> None:
    assert answers[what] != []


def test_vllm_does_not_read_a_variable_that_never_existed(answers: dict[str, list[str]]) -> None:
    assert answers["a variable"] == ["vLLM does not read VLLM_FP8_MOE_BACKEND"]


def test_the_option_table_equals_vllms_parser(base: str, answers: dict[str, list[str]]) -> None:
    """Tables are extracted from sources without running them; this compares them with the running parser."""
    table = load_table(BASES[base])
    assert table is not None
    words = {word for word in answers["options"] if word.startswith("--")}
    mine = {f"--{name}" for name in table.flags} | {f"--no-{n}" for n, kind in table.flags.items() if kind == "toggle"}
    assert words - {"--help"} - mine == set()
    assert mine - words == {"--omni"}, "handled before the parser exists"
