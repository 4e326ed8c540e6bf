"""Every serving command of the hermetic bases is accepted by vLLM itself: the same version's wheel for this machine.

The wheel and the locked distributions that are not CUDA are installed below ~/.cache/builder-tests with a CPU build of
torch from the folders that pip is configured for; vLLM's compiled parts are not needed to parse a command line. Where
there is no such torch the tests are skipped: 3 GB of CUDA would be fetched to parse options.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from builder.knowledge.table import load_table
from builder.lock.wheels import uv_program
from builder.model.lock import WheelLock
from builder.model.variant import with_profile
from builder.plan.resolve import resolve
from builder.project import Project
from builder.smoke.cpu.serving import PROGRAM
from builder.smoke.plan_checks import checks_of
from tests.support.cache import TESTS_CACHE
from tests.support.nightly import nightly_but

pytestmark = [pytest.mark.slow]

PROJECT = Project()
BASES = {f"hermetic-0.{minor}": f"0.{minor}.0" for minor in (20, 23, 28, 30, 32)}
# Distributions that only a GPU needs, and the largest one.
LEFT_OUT = ("nvidia-", "torch", "triton", "flashinfer-cubin", "z3-solver", "cupy-")


def locked(version: str) -> list[str]:
    """The distributions of hermetic bases with this vLLM and of their layers, as requirements.

    Images have a newer Python than most machines: the requirement is an upper bound, for distributions that dropped
    this machine's Python.
    """
    names = [f"{kind}-{version}-cp313" for kind in ("vllm", "audio", "ray", "omni")]
    sections = [PROJECT.section(name) for name in names if PROJECT.has_section(name)]
    wheels = [wheel for section in sections if isinstance(section, WheelLock) for wheel in section.wheels]
    return sorted({f"{w.name}<={w.version}" for w in wheels if w.name != "vllm" and not w.name.startswith(LEFT_OUT)})


@cache
def cpu_torch() -> str | None:
    """The path of a CPU build of torch, from the folders that this machine's pip looks at; None where there is none."""
    folder = TESTS_CACHE / "torch-cpu"
    if not list(folder.glob("*.whl")):
        # The public index has builds for CUDA only.
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-index"]
        subprocess.run([*command, "--dest", str(folder), "torch"], capture_output=True, check=False)
    return next((str(wheel) for wheel in folder.glob("torch-*+cpu-*.whl")), None)


@cache
def interpreter(version: str) -> Path:
    """A virtual environment with this vLLM, kept between runs; creating it takes about half a minute."""
    torch = cpu_torch()
    if torch is None:
        pytest.skip("this machine's pip finds no CPU build of torch")
    wanted = locked(version)
    state = hashlib.sha256(json.dumps([torch, wanted, sys.version]).encode()).hexdigest()[:16]
    folder = TESTS_CACHE / f"vllm-{version}-{state}"
    if not (folder / "done").is_file():
        for old in TESTS_CACHE.glob(f"vllm-{version}-*"):
            shutil.rmtree(old)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        install = [uv_program(), "pip", "install", "--quiet", "--python", str(folder / "bin/python"), "--no-deps"]
        (folder / "wanted.txt").write_text("\n".join([*wanted, f"vllm=={version}", "nvidia-cutlass-dsl<5"]))
        subprocess.run([*install, "-r", str(folder / "wanted.txt")], check=True, timeout=900)
        subprocess.run([*install, torch], check=True, timeout=300)
        (folder / "done").touch()
    return folder / "bin/python"


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
    program += "found['options'] = [word for item in make_parser()._actions for word in item.option_strings]\n"
    program += "print('RESULT', json.dumps(found))\n"
    found: dict[str, list[str]] = ask(base, program, json.dumps(asked))
    return found


def ask(base: str, program: str, given: str = "") -> Any:
    """The JSON that a program prints after RESULT, in the interpreter that has the base's vLLM."""
    env = {"PATH": os.environ["PATH"], "HOME": str(Path.home()), "VLLM_LOGGING_LEVEL": "ERROR"}
    argv = [interpreter(BASES[base]), "-c", program]
    done = subprocess.run(argv, input=given, env=env, capture_output=True, text=True, check=False, timeout=600)
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
    assert line, done.stderr[-3000:]
    return json.loads(line.removeprefix("RESULT "))


def test_vllm_accepts_every_serving_command(base: str, answers: dict[str, list[str]]) -> None:
    every = cases(base)
    assert len(every) > 40
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
