"""The DFlash layer's program: the image's command, changed by the variables of the prebuilt image."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from builder.plan.command import serving
from builder.plan.resolve import resolve
from builder.project import Project
from builder.serve.spec import container

PROJECT = Project()
PROGRAM = Path(__file__).resolve().parents[3] / "dockerfiles/layers/dflash/serve"
PLAN = resolve(PROJECT, PROJECT.recipe("qwen3.5-27b-dflash"), base="hermetic")


def served(folder: Path, *words: str, **variables: str) -> list[str]:
    """The arguments that `vllm` is called with."""
    (folder / "vllm").write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    (folder / "vllm").chmod(0o755)
    env = {"PATH": f"{folder}:{os.environ['PATH']}", **variables}
    argv = [sys.executable, str(PROGRAM), *words]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert isinstance(made, list)
    return made


def after(words: list[str], option: str) -> str:
    assert words.count(option) == 1
    return words[words.index(option) + 1]


def test_the_image_runs_it_with_the_recipes_command() -> None:
    assert PLAN.entrypoint == ("/opt/dflash/serve",)
    assert PLAN.command[0] == "/models/target"
    (layer,) = [layer for layer in PLAN.layers if layer.id == "dflash"]
    assert layer.spec is not None
    assert layer.spec["files"] == [{"path": "opt/dflash/serve", "content": PROGRAM.read_text("utf-8"), "mode": "0755"}]
    base = PROJECT.base("vllm-openai-0.24.0")
    assert container(PROJECT.recipe("qwen3.5-27b-dflash"), base, "a/b:1").command == PLAN.command


def test_without_variables_nothing_is_changed(tmp_path: Path) -> None:
    assert served(tmp_path, *PLAN.command) == ["serve", *PLAN.command]


def test_every_variable_of_the_prebuilt_image_becomes_an_option(tmp_path: Path) -> None:
    prebuilt = PROJECT.recipe("qwen3.5-27b-dflash").profiles["prebuilt"].run.env
    changed = {
        name: {"MAX_NUM_SEQS": "4", "MAX_MODEL_LEN": "1024"}.get(name, value) for name, value in prebuilt.items()
    }
    words = served(tmp_path, "elsewhere/model", "--max-num-seqs", "16", "--port", "8000", **changed)
    assert words[:2] == ["serve", "/models/target"]
    assert after(words, "--max-num-seqs") == "4"
    assert after(words, "--max-model-len") == "1024"
    assert after(words, "--served-model-name") == "dflash-qwen3.5-27b"
    assert after(words, "--gpu-memory-utilization") == "0.85"
    assert after(words, "--max-num-batched-tokens") == "32768"
    assert after(words, "--port") == "8000"
    config = {"method": "dflash", "model": "z-lab/Qwen3.5-27B-DFlash", "num_speculative_tokens": 15}
    assert json.loads(after(words, "--speculative-config")) == config


def test_the_drafter_can_be_changed_in_part_or_left_out(tmp_path: Path) -> None:
    fewer = json.loads(after(served(tmp_path, *PLAN.command, DFLASH_NUM_SPEC_TOKENS="8"), "--speculative-config"))
    assert fewer == {"method": "dflash", "model": "z-lab/Qwen3.5-27B-DFlash", "num_speculative_tokens": 8}
    assert "--speculative-config" not in served(tmp_path, *PLAN.command, DFLASH_DRAFTER="")


def test_tokens_without_a_drafter_are_an_error(tmp_path: Path) -> None:
    argv = [sys.executable, str(PROGRAM), "a/b"]
    done = subprocess.run(argv, env={"DFLASH_NUM_SPEC_TOKENS": "8"}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "set DFLASH_DRAFTER too" in done.stderr


def test_the_prebuilt_image_keeps_its_own_entrypoint() -> None:
    assert serving(PROJECT.recipe("qwen3.5-27b-dflash"), PROJECT.base("aeon-vllm-dflash")) == (None, ())
