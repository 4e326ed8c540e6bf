"""How recipes are run: every output is parsed back and must say what the container is."""

from __future__ import annotations

import os
import shlex
import subprocess
from itertools import pairwise
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from builder.errors import UsageError
from builder.model.recipe import Recipe
from builder.project import Project
from builder.serve.formats import compose, docker_command, docker_words, shell, systemd, unit_word
from builder.serve.spec import Container, Node, container, netplan, prefetch, warm_up

PROJECT = Project()
IMAGE = "registry.example/spark@sha256:" + "a1" * 32
HEAD = Node("head", "192.168.100.10", "192.168.100.10", "enp1s0f0np0", "rocep1s0f0,roceP2p1s0f0")
WORKER = Node("worker", "192.168.100.11", "192.168.100.10", "enp1s0f0np0", "rocep1s0f0,roceP2p1s0f0")


def made(recipe: Recipe, node: Node | None = None, **options: Any) -> Container:
    node = node or (HEAD if recipe.nodes == 2 else None)
    return container(recipe, PROJECT.base(recipe.base), IMAGE, node=node, **options)


def parsed(command: str) -> list[str]:
    """The words that a real shell makes of a command."""
    script = f"docker() {{ printf '%s\\0' docker \"$@\"; }}\n{command}"
    env = {**os.environ, "HOME": "/home/x y"}
    result = subprocess.run(["bash", "-c", script], env=env, capture_output=True, check=True)
    return result.stdout.decode().split("\0")[:-1]


def unit_words(line: str) -> list[str]:
    """What systemd makes of a command line: quotes and backslashes as a shell's, then %% and $$."""
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line)]


@pytest.mark.parametrize("name", PROJECT.recipe_names())
def test_every_recipe_can_be_run_and_every_format_says_the_same(name: str) -> None:
    recipe = PROJECT.recipe(name)
    c = made(recipe)
    words = docker_words(c, home="/home/x y")
    assert parsed(docker_command(c)) == words
    start = next(line for line in systemd(c).splitlines() if line.startswith("ExecStart="))
    assert unit_words(start.removeprefix("ExecStart=")) == docker_words(c, detach=False, home="%h")
    (service,) = yaml.safe_load(compose(c))["services"].values()
    assert [word.replace("$$", "$") for word in service.get("command", [])] == list(c.command)
    assert set(recipe.run.secrets) <= set(service["environment"])


def test_what_a_spark_needs_is_there() -> None:
    words = docker_words(made(PROJECT.recipe("nemotron-omni"), port=9000, offline=True, user="1000:1000"))
    pairs = list(pairwise(words))
    for pair in [
        ("--gpus", "all"),
        ("--ipc", "host"),
        ("--restart", "unless-stopped"),
        ("--shm-size", "16g"),
        ("--publish", "9000:8000"),
        ("--env", "HF_HUB_OFFLINE=1"),
        ("--env", "HF_TOKEN"),
        ("--user", "1000:1000"),
        ("--volume", "~/vllm:/models"),
        ("--volume", f"~/vllm-compile-cache/{'a1' * 32}:/root/.cache/vllm"),
    ]:
        assert pair in pairs


def test_vllm_serve_is_said_where_the_base_passes_its_command_through_and_nowhere_else() -> None:
    assert made(PROJECT.recipe("gpt-oss-120b")).command[:3] == ("vllm", "serve", "openai/gpt-oss-120b")
    assert made(PROJECT.recipe("qwen3.6-35b")).command[0] == "nvidia/Qwen3.6-35B-A3B-NVFP4"


@pytest.mark.parametrize("name", ["minimax-m2.7-dual", "qwen3.5-122b-fp8-dual"])
def test_two_nodes(name: str) -> None:
    recipe = PROJECT.recipe(name)
    head, worker = made(recipe, HEAD), made(recipe, WORKER)
    for c, node in ((head, HEAD), (worker, WORKER)):
        assert dict(c.env)["VLLM_HOST_IP"] == node.ip
        assert dict(c.env)["GLOO_SOCKET_IFNAME"] == node.interface
        assert "host" in docker_words(c)
        assert c.memlock
        assert c.devices == ("/dev/infiniband",)
        assert c.entrypoint == "/bin/bash"
    assert "ray start --head --port=6379 --num-gpus=1" in head.command[1]
    assert "vllm serve" in head.command[1]
    assert "--address=192.168.100.10:6379" in worker.command[1]
    assert "vllm serve" not in worker.command[1]
    assert ("NCCL_IB_HCA" in dict(head.env)) == (name == "minimax-m2.7-dual")


def test_two_nodes_need_to_know_which_one_and_its_devices() -> None:
    recipe = PROJECT.recipe("minimax-m2.7-dual")
    with pytest.raises(UsageError, match="which one"):
        container(recipe, PROJECT.base(recipe.base), IMAGE)
    with pytest.raises(UsageError, match="RDMA"):
        made(recipe, Node("head", "1.2.3.4", "1.2.3.4", "eth0"))


def test_the_link_gets_jumbo_frames() -> None:
    assert yaml.safe_load(netplan("enp1s0f0np0", "192.168.100.10"))["network"]["ethernets"] == {
        "enp1s0f0np0": {"mtu": 9000, "dhcp4": False, "addresses": ["192.168.100.10/24"]}
    }


def test_prefetch_stages_the_weights_where_run_mounts_them() -> None:
    assert prefetch(PROJECT.recipe("qwen3.6-35b")) == [
        ({"HF_HOME": "~/vllm"}, ("hf", "download", "nvidia/Qwen3.6-35B-A3B-NVFP4"))
    ]
    (_, words), *_ = prefetch(PROJECT.recipe("gemma4-12b-coder"))
    assert words[-1] == "~/vllm/gemma4-coder"
    dflash = [words[2] for _, words in prefetch(PROJECT.recipe("laguna-xs2-dflash"))]
    assert dflash == ["poolside/Laguna-XS.2", "poolside/Laguna-XS.2-speculator.dflash"]


def test_the_warm_up_asks_for_the_served_name() -> None:
    assert '"model": "nemotron-omni"' in warm_up(PROJECT.recipe("nemotron-omni"), 8000)[-1]


TEXT = st.text(st.characters(blacklist_categories=("Cc", "Cs"), blacklist_characters="\x00"), min_size=1)


@given(TEXT)
def test_any_word_survives_the_shell(word: str) -> None:
    assert shlex.split(shell(word)) == [word.replace("~/", "$HOME/", 1) if word.startswith("~/") else word]


@given(TEXT.filter(lambda word: not word.startswith("%h/")))
def test_any_word_survives_a_unit(word: str) -> None:
    assert unit_words(unit_word(word)) == [word]
