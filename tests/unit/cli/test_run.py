"""`builder run` and `builder prefetch` as a user calls them: wrong options, rules, docker, two Sparks."""

from __future__ import annotations

import pytest

from tests.support.cli import Cli

ONE = ("run", "--recipe", "nemotron-omni", "--image", "x:1")
TWO = ("run", "--recipe", "minimax-m2.7-dual", "--image", "x:1")
HEAD = ("--role", "head", "--ip", "192.168.100.10", "--interface", "bond0")

WRONG: list[tuple[tuple[str, ...], str, str]] = [
    ((*ONE, "--profile", "fast"), "profile-unknown", "'fast'"),
    ((*ONE, "--format", "k8s"), "format-unknown", ""),
    ((*ONE, "--exec", "--format", "compose"), "exec-not-docker", ""),
    ((*ONE, "--user", "me"), "user-invalid", ""),
    ((*ONE, "--base", "ngc-26.04"), "base-not-compatible", "builder new recipe NAME --extends nemotron-omni"),
    ((*ONE, "--interface", "bond0"), "node-options-without-role", ""),
    ((*ONE, *HEAD), "serve-role-unexpected", "--role"),
    (TWO, "serve-role-missing", "--role head --ip ADDRESS --interface NAME --hca DEVICES"),
    ((*TWO, *HEAD), "node-options-missing", "add --hca DEVICES; "),
    ((*TWO, "--role", "worker"), "node-options-missing", "--ip ADDRESS --interface NAME --head ADDRESS --hca DEVICES"),
    ((*TWO, "--interface", "bond0"), "serve-role-missing", "add --role head --ip ADDRESS --hca DEVICES"),
    ((*TWO, "--role", "both"), "role-unknown", ""),
    ((*TWO, "--role", "worker", *HEAD[2:]), "node-options-missing", ""),
    ((*TWO, "--netplan"), "node-options-missing", ""),
    ((*TWO, "--netplan", "--ip", "192.168.100.10/24", "--interface", "bond0"), "address-invalid", ""),
    ((*TWO, "--role", "head", "--ip", "1.2.3.4", "--interface", "b;id", "--hca", "x"), "device-name-invalid", ""),
    ((*TWO, *HEAD, "--hca", "a b"), "device-name-invalid", ""),
    (("run", "--recipe", "tiny"), "image-not-built", ""),
    (
        ("run", "--recipe", "tiny"),
        "image-not-built",
        "builder build --recipe tiny --load; or name an image: --image REF",
    ),
    (
        ("run", "--recipe", "tiny", "--profile", "ngram"),
        "image-not-built",
        "builder build --recipe tiny --profile ngram --load",
    ),
    (("prefetch", "--recipe", "qwen3-omni", "--exec", "--json"), "prefetch-options-conflict", ""),
]


@pytest.mark.parametrize(("words", "id", "part"), WRONG, ids=[" ".join(words[1:])[:70] for words, *_ in WRONG])
def test_wrong_options_are_2_with_a_next_step(cli: Cli, words: tuple[str, ...], id: str, part: str) -> None:
    said = cli(*words)
    said.failed(2, id)
    assert part in said.err


def test_an_unpinned_base_is_4_and_another_base_is_named(cli: Cli) -> None:
    said = cli("run", "--recipe", "qwen3.6-35b")
    said.failed(4, "base-not-pinned")
    assert "or add --base vllm-openai-0.24.0; or name an image: --image REF" in said.err


def test_without_docker_or_hf_it_is_5_and_no_folder_is_made(cli: Cli) -> None:
    prefetch = ("prefetch", "--recipe", "qwen3-omni", "--exec")
    for words, id in (((*ONE, "--exec"), "docker-missing"), (prefetch, "hf-missing")):
        said = cli(*words)
        said.failed(5, id)
        assert "next:" in said.err
    assert list((cli.folder / "home").iterdir()) == []


def test_a_broken_rule_is_reported_and_refused_with_exec(cli: Cli) -> None:
    broken = (*ONE[:2], "gemma4-31b", "--image", "x:1", "--profile", "expert-parallel")
    said = cli(*broken)
    assert said.code == 0
    assert "breaks GB10-038: --enable-expert-parallel on a model without experts" in said.err
    failing_docker(cli)
    refused = cli(*broken, "--exec")
    refused.failed(9, "recipe-breaks-rules")
    assert "builder rules GB10-038" in refused.err
    assert "warning: GB10-019" in cli("run", "--recipe", "qwen3.5-27b-dflash", "--image", "x:1").err
    assert "GB10" not in cli("run", "--recipe", "gemma4-12b-coder", "--image", "x:1").err, "overridden with a reason"


def test_a_build_reports_a_broken_rule_and_goes_on(cli: Cli) -> None:
    cli.small.files["recipes/tiny.yaml"]["serve"] = {"flags": {"enforce-eager": True}}
    said = cli("build", "--recipe", "tiny", "--offline")
    assert said.code in (4, 5), "nothing has been fetched, no engine is here"
    assert said.err.startswith("breaks GB10-002: ")


def failing_docker(cli: Cli) -> None:
    (cli.folder / "bin").mkdir(exist_ok=True)
    (cli.folder / "bin/docker").write_text("#!/bin/sh\nexit 125\n")
    (cli.folder / "bin/docker").chmod(0o755)


def test_docker_that_fails_is_5_with_a_next_step(cli: Cli) -> None:
    failing_docker(cli)
    said = cli(*ONE, "--exec")
    said.failed(5, "docker-run-failed")
    assert "125" in said.err
    assert "docker rm --force nemotron-omni" in said.err
    assert {path.name for path in (cli.folder / "home").iterdir()} == {"vllm", "media", "vllm-compile-cache"}


def test_a_mounted_file_is_not_made_a_folder(cli: Cli) -> None:
    failing_docker(cli)
    words = ("run", "--recipe", "gemma4-26b", "--profile", "patched-loader", "--image", "x:1", "--exec")
    said = cli(*words)
    said.failed(2, "mounted-file-missing")
    assert "gemma4_patched.py" in said.err
    file = cli.folder / "home/vllm/gemma4-26b-a4b-nvfp4/gemma4_patched.py"
    file.parent.mkdir(parents=True)
    file.write_text("loader")
    assert cli(*words).code == 5, "docker was asked"
    assert file.read_text() == "loader"


def test_the_head_prints_the_worker_s_command_and_netplan_prints_the_test_of_the_link(cli: Cli) -> None:
    said = cli(*TWO, *HEAD, "--hca", "rocep1s0f0")
    worker = said.err.partition("run there: ")[2].partition("\n")[0]
    assert worker.startswith("builder run --recipe minimax-m2.7-dual --image x:1 --role worker")
    again = cli(*worker.replace("ITS-ADDRESS", "192.168.100.11").split()[1:])
    assert again.code == 0
    assert "--node-rank 1" in again.out and "--headless" in again.out
    ray = cli(*TWO, "--profile", "ray", *HEAD, "--hca", "rocep1s0f0")
    assert "ray start --head --port=6379" in ray.out
    key = cli("run", "--recipe", "qwen3.5-27b-dflash", "--image", "x:1")
    assert '-H "Authorization: Bearer $VLLM_API_KEY"' in key.err, "every request needs it"
    netplan = cli(*TWO[:3], "--netplan", *HEAD[2:])
    assert netplan.code == 0
    assert "bonds:\n    bond0:\n      mtu: 9000" in netplan.out
    assert "192.168.100.10" not in netplan.err, "not a ping of itself"
