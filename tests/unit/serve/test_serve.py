"""Containers of recipes: every output format, parsed back, describes the same container."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from builder.errors import UsageError
from builder.model.recipe import Recipe, Run
from builder.model.variant import with_profile
from builder.project import Project
from builder.serve.api import create_options
from builder.serve.formats import compose, docker_command, docker_words, env_file, shell, systemd, unit_word
from builder.serve.spec import Container, Mount, Node, container, warm_up
from builder.serve.staging import netplan, prefetch
from tests.support.containers import HEAD, IMAGE, WORKER, made
from tests.support.errors import fails

PROJECT = Project()


def parsed(command: str) -> list[str]:
    """The arguments that a real shell parses from a command."""
    script = f"docker() {{ printf '%s\\0' docker \"$@\"; }}\n{command}"
    env = {**os.environ, "HOME": "/home/x y"}
    result = subprocess.run(["bash", "-c", script], env=env, capture_output=True, check=True)
    return result.stdout.decode().split("\0")[:-1]


def unit_words(line: str) -> list[str]:
    """The arguments that systemd parses from a command line: quotes and backslashes as a shell's, then %% and $$."""
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line)]


SERVED = [
    (name, profile, role)
    for name in PROJECT.recipe_names()
    for profile in (None, *PROJECT.recipe(name).profiles)
    for role in ((HEAD, WORKER) if PROJECT.recipe(name).nodes == 2 else (None,))
]
HOME = "/home/x y"


def each(name: str, profile: str | None, node: Node | None, **options: Any) -> tuple[Recipe, Container]:
    recipe = with_profile(PROJECT.recipe(name), profile, PROJECT.shared_profiles)
    return recipe, made(recipe, node, **options)


def plain(value: str) -> str:
    """A value of a compose file as compose reads it; no variable is in it but HOME."""
    assert not re.search(r"(?<!\$)(\$\$)*\$(?![$]|\{HOME\})", value), value
    return value.replace("${HOME}", HOME).replace("$$", "$")


@pytest.mark.parametrize(("name", "profile", "node"), SERVED, ids=str)
def test_every_format_of_every_recipe_and_profile_is_the_same_container(
    name: str, profile: str | None, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    for secret in ("HF_TOKEN", "VLLM_API_KEY"):
        monkeypatch.delenv(secret, raising=False)
    recipe, c = each(name, profile, node)
    words = docker_words(c, home=HOME)
    assert parsed(docker_command(c)) == words

    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(systemd(c, home=HOME))
    assert unit_words(unit["Service"]["ExecStart"]) == docker_words(c, detach=False, home=HOME)
    assert unit["Install"]["WantedBy"] == "multi-user.target"
    assert unit["Unit"]["Wants"] == "network-online.target", "After alone starts nothing"
    assert int(unit["Service"]["RestartSec"]) >= 10
    stop = int(dict(pairwise(words))["--stop-timeout"])
    assert int(unit["Service"]["TimeoutStopSec"]) > stop >= 60, "docker waits for the server, and systemd for docker"

    service = yaml.safe_load(compose(c))["services"][c.name]
    assert plain(service["image"]) == c.image
    assert [plain(word) for word in service.get("command", [])] == list(c.command)
    assert [plain(word) for word in service["environment"]] == [*(f"{k}={v}" for k, v in c.env), *c.secrets]
    volumes = [word for before, word in pairwise(words) if before == "--volume"]
    assert [plain(word) for word in service["volumes"]] == volumes
    assert service.get("ports", []) == [word for before, word in pairwise(words) if before == "--publish"]
    assert service.get("network_mode") == ("host" if c.ports is None else None)
    assert service.get("shm_size") == recipe.run.shm_size
    assert service["stop_grace_period"] == f"{stop}s"

    options = create_options(c, home=HOME)
    assert options["volumes"] == volumes
    assert options["environment"] == dict(c.env), "no secret is set here"
    assert options["devices"] == [word for before, word in pairwise(words) if before == "--device"]
    assert options.get("network_mode") == service.get("network_mode")
    assert [f"{out}:{port.removesuffix('/tcp')}" for port, out in options.get("ports", {}).items()] == service.get(
        "ports", []
    )
    assert options.get("shm_size") == recipe.run.shm_size
    assert (options.get("ulimits") is not None) == ("memlock=-1:-1" in words)

    assert env_file(c).splitlines() == [word for before, word in pairwise(words) if before == "--env"]
    assert not [value for _, value in c.env if "hf_" in value], "secrets by name only"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize(("name", "profile", "node"), SERVED, ids=str)
def test_systemd_accepts_every_unit(name: str, profile: str | None, node: Node, tmp_path: Path) -> None:
    _, c = each(name, profile, node)
    # A stub of docker: the verifier checks that the program exists.
    text = systemd(c, home=HOME).replace("docker.service", "").replace("docker ", "/bin/true ")
    (tmp_path / "vllm.service").write_text(text)
    argv = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "vllm.service")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_container_has_what_a_spark_needs() -> None:
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
        ("--env", "TRANSFORMERS_OFFLINE=1"),
        ("--volume", f"~/vllm-compile-cache/{'a1' * 32}:/var/cache/vllm"),
        ("--env", "HOME=/var/cache/vllm"),
    ]:
        assert pair in pairs


def test_vllm_serve_is_in_the_command_only_if_the_entrypoint_of_the_base_passes_it_through() -> None:
    assert made(PROJECT.recipe("gpt-oss-120b")).command[:3] == ("vllm", "serve", "openai/gpt-oss-120b")
    assert made(PROJECT.recipe("qwen3.6-35b")).command[0] == "nvidia/Qwen3.6-35B-A3B-NVFP4"


def test_two_nodes_need_a_role_and_devices() -> None:
    recipe = PROJECT.recipe("minimax-m2.7-dual")
    with fails(UsageError, "serve-role-missing"):
        container(recipe, PROJECT.base(recipe.base), IMAGE)
    with fails(UsageError, "serve-hca-missing"):
        made(recipe, Node("head", "1.2.3.4", "1.2.3.4", "eth0"))


def test_options_that_do_not_fit_are_refused() -> None:
    with fails(UsageError, "serve-role-unexpected"):
        made(PROJECT.recipe("qwen3.6-35b"), HEAD)
    with fails(UsageError, "serve-port-fixed"):
        made(PROJECT.recipe("minimax-m2.7-dual"), HEAD, port=9000)


def test_a_front_end_is_on_the_servers_network_and_waits_for_its_models() -> None:
    services = yaml.safe_load(compose(made(PROJECT.recipe("qwen3.6-35b"))))["services"]
    ui = services["front-end"]
    assert ui["profiles"] == ["front-end"], "it starts only when it is asked for"
    assert "OPENAI_API_BASE_URL=http://qwen3.6-35b:8000/v1" in ui["environment"]
    assert "AIOHTTP_CLIENT_TIMEOUT_MODEL_LIST=30" in ui["environment"]
    assert not {"network_mode", "networks"} & {*ui, *services["qwen3.6-35b"]}, "both are on the project's own network"
    dual = yaml.safe_load(compose(made(PROJECT.recipe("minimax-m2.7-dual"), HEAD)))["services"]["front-end"]
    assert "OPENAI_API_BASE_URL=http://host.docker.internal:8000/v1" in dual["environment"]
    assert dual["extra_hosts"] == ["host.docker.internal:host-gateway"]
    assert "front-end" not in compose(made(PROJECT.recipe("minimax-m2.7-dual"), WORKER))


def test_a_key_of_the_server_reaches_the_front_end_by_name() -> None:
    ui = yaml.safe_load(compose(made(PROJECT.recipe("qwen3.5-27b-dflash"))))["services"]["front-end"]
    assert "OPENAI_API_KEY=${VLLM_API_KEY:-none}" in ui["environment"]


@pytest.mark.parametrize("name", PROJECT.recipe_names())
def test_prefetch_stages_all_files_that_the_serving_command_names(name: str) -> None:
    recipe = PROJECT.recipe(name)
    steps = prefetch(recipe)
    drafter = (recipe.serve.flags.get("speculative-config") or {}).get("model", "")  # type: ignore[union-attr]
    staged = {words[2] for _, words in steps}
    assert recipe.model.id in staged
    assert not drafter or drafter.startswith("/") or drafter in staged
    for env, words in steps:
        folder = words[-1] if "--local-dir" in words else env["HF_HOME"]
        assert folder in [volume.host for volume in recipe.run.volumes], "where `run` mounts it"


def test_the_link_gets_jumbo_frames() -> None:
    assert yaml.safe_load(netplan([("enp1s0f0np0", "192.168.100.10")]))["network"]["ethernets"] == {
        "enp1s0f0np0": {"mtu": 9000, "dhcp4": False, "addresses": ["192.168.100.10/24"]}
    }


def test_prefetch_stages_the_weights_where_run_mounts_them() -> None:
    assert prefetch(PROJECT.recipe("qwen3.6-35b")) == [
        ({"HF_HOME": "~/vllm", "HF_HUB_DISABLE_SHARED_BLOBS": "1"}, ("hf", "download", "nvidia/Qwen3.6-35B-A3B-NVFP4"))
    ]
    (_, words), *_ = prefetch(PROJECT.recipe("gemma4-12b-coder"))
    assert words[-1] == "~/vllm/gemma4-coder"
    dflash = [words[2] for _, words in prefetch(PROJECT.recipe("laguna-xs2-dflash"))]
    assert dflash == ["poolside/Laguna-XS.2", "poolside/Laguna-XS.2-speculator.dflash"]


def test_the_warm_up_asks_for_the_served_name() -> None:
    assert '"model": "nemotron-omni"' in warm_up(PROJECT.recipe("nemotron-omni"), 8000)[-1]


TEXT = st.text(st.characters(blacklist_categories=("Cc", "Cs"), blacklist_characters="\x00"), min_size=1)


@given(TEXT)
def test_any_argument_survives_the_shell(word: str) -> None:
    assert shlex.split(shell(word)) == [word.replace("~/", "$HOME/", 1) if word.startswith("~/") else word]


@given(TEXT)
def test_any_argument_survives_a_unit(word: str) -> None:
    assert unit_words(unit_word(word)) == [word]


def test_compose_replaces_no_variable_in_a_path() -> None:
    plain_one = made(PROJECT.recipe("qwen3.6-35b"))
    odd = replace(plain_one, mounts=(Mount("/a/$HOST", "/b/${TOKEN}"),), entrypoint="/bin/$0")
    service = yaml.safe_load(compose(odd))["services"][odd.name]
    assert service["volumes"] == ["/a/$$HOST:/b/$${TOKEN}"] and service["entrypoint"] == ["/bin/$$0"]


@pytest.mark.parametrize("item", ["--local-dir=/x", "a", "-a/b", "a/b:--local-dir=/x", "a/b@--x", "a/b@", "a/b:"])
def test_a_download_is_no_option_of_the_hubs_client(item: str) -> None:
    with pytest.raises(ValidationError):
        Run(downloads=(item,))


@pytest.mark.parametrize("item", ["a/b", "a.b/c-d@main", "a/b@refs/pr/1:x.json", "a/b:folder/x y.json"])
def test_a_download(item: str) -> None:
    assert Run(downloads=(item,)).downloads == (item,)
