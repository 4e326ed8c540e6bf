"""`builder cache`, `prefetch --exec` and `run` for strange images and for a Spark with 64 GB, as a user calls them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Cli
from tests.support.docker_daemon import docker_daemon
from tests.support.docker_state import DockerDaemon
from tests.support.storefiles import deep_folder

HEX = "a1" * 32
IMAGE = f"registry.example/team/omni@sha256:{HEX}"


@pytest.fixture
def docker(cli: Cli, tmp_path: Path) -> Iterator[DockerDaemon]:
    with docker_daemon(tmp_path / "docker.sock") as daemon:
        cli.environ["DOCKER_HOST"] = daemon.url
        yield daemon


def compiled(cli: Cli, name: str) -> Path:
    folder = cli.folder / "home/vllm-compile-cache" / name
    folder.mkdir(parents=True)
    (folder / "kernel.so").write_bytes(b"x" * 50_000)
    return folder


def test_caches_of_images_that_are_gone_are_listed_and_deleted(cli: Cli, docker: DockerDaemon) -> None:
    docker.images |= {IMAGE: "sha256:" + "b2" * 32, "omni:0123456789ab": "sha256:" + "c3" * 32}
    kept = [compiled(cli, name) for name in (HEX, "omni-0123456789ab", "c3" * 32)]
    gone = [compiled(cli, name) for name in ("d4" * 32, "old-name")]
    (cli.folder / "home/vllm-compile-cache/file").write_text("not a folder")
    (cli.folder / "home/vllm-compile-cache/link").symlink_to(cli.folder)
    said = cli("cache")
    assert [line.split()[-1] for line in said.out.splitlines() if "no such image" not in line] == [
        IMAGE,
        "@sha256:" + "c3" * 32,
        "omni:0123456789ab",
    ]
    assert "2 of 5 belong to no image" in said.err
    assert all(path.exists() for path in (*kept, *gone)), "listing deletes nothing"
    listed = {item["folder"]: item["image"] for item in json.loads(cli("cache", "--json").out)}
    assert (listed[HEX], listed["old-name"]) == (IMAGE, None)
    assert "deleted 2 of 5 folders" in cli("cache", "--prune").err
    assert all(path.exists() for path in kept)
    assert not [path for path in gone if path.exists()]
    assert (cli.folder / "home/vllm-compile-cache/file").exists()
    assert cli.folder.exists(), "a link is not followed"


def test_a_cache_may_be_deeper_than_any_recursion(cli: Cli, docker: DockerDaemon) -> None:
    """Code of an image writes it."""
    folder = compiled(cli, HEX)
    deep_folder(folder, 2500)
    assert cli("cache").code == 0
    assert "deleted 1 of 1 folders" in cli("cache", "--prune").err
    assert not folder.exists()


def test_without_docker_nothing_is_deleted(cli: Cli) -> None:
    assert cli("cache").code == 0, "there is nothing to ask docker about"
    folder = compiled(cli, HEX)
    cli("cache", "--prune", DOCKER_HOST="unix:///nowhere.sock").failed(5, "docker-unreachable")
    assert folder.exists()


HF = """#!/bin/sh
echo "$@" >>"$HOME/../said"
case "$*" in
  *--help*) exit {help} ;;
  cache*) exit {verify} ;;
esac
"""


def with_hf(cli: Cli, *, help: int = 0, verify: int = 0) -> None:
    cli.write()
    (cli.folder / "bin/hf").write_text(HF.format(help=help, verify=verify))
    (cli.folder / "bin/hf").chmod(0o755)


PREFETCH = ("prefetch", "--recipe", "laguna-xs2-dflash", "--exec")


def test_downloads_are_verified_with_the_hubs_checksums(cli: Cli) -> None:
    with_hf(cli)
    said = cli(*PREFETCH)
    assert said.code == 0, said.err
    assert "verified: the files of poolside/Laguna-XS.2, poolside/Laguna-XS.2-speculator.dflash" in said.err
    calls = (cli.folder / "said").read_text().splitlines()
    assert calls[0] == "download poolside/Laguna-XS.2"
    assert calls[-2] == "cache verify --fail-on-missing-files poolside/Laguna-XS.2"


def test_a_file_that_differs_is_5(cli: Cli) -> None:
    with_hf(cli, verify=1)
    cli(*PREFETCH).failed(5, "weights-differ")


def test_an_old_client_downloads_and_says_that_it_cannot_verify(cli: Cli) -> None:
    with_hf(cli, help=2)
    said = cli(*PREFETCH)
    assert said.code == 0
    assert "not verified: this hf has no `hf cache verify`" in said.err


def test_an_image_of_others_gets_the_variables_that_the_profile_sets(cli: Cli) -> None:
    said = cli("run", "--recipe", "qwen3.6-35b", "--profile", "yarn", "--image", "x:1")
    assert "--env VLLM_ALLOW_LONG_MAX_MODEL_LEN=1" in said.out
    marlin = cli("run", "--recipe", "gpt-oss-120b", "--profile", "marlin-variable", "--image", "x:1")
    assert "--env VLLM_MXFP4_USE_MARLIN=1" in marlin.out
    layers = cli("run", "--recipe", "gemma4-26b", "--profile", "ngc", "--image", "x:1")
    assert "profile ngc changes the image (base, layers): --image must be built with it" in layers.err


def test_a_recipe_for_128_gb_is_refused_on_64(cli: Cli) -> None:
    said = cli("run", "--recipe", "qwen3.6-35b", "--image", "x:1", "--machine", "spark-64")
    assert "breaks GB10-055: the recipe is for 128 GB, and the machine has 64 GB" in said.err
    assert "GB10-055" not in cli("run", "--recipe", "qwen3.6-35b", "--image", "x:1", "--machine", "spark-128").err
    linted = cli("lint", "tiny", "--machine", "spark-64")
    assert (linted.code, "GB10-055" in linted.out) == (9, True)
    assert "GB10-055" not in cli("lint", "tiny").out
    cli("lint", "--machine", "spark-32").failed(2, "machine-unknown")


TWO = ("run", "--recipe", "minimax-m2.7-dual", "--netplan")


def test_netplan_configures_both_interfaces_of_a_cable(cli: Cli) -> None:
    both = ("--interface", "enp1s0f1np1,enP2p1s0f1np1")
    said = cli(*TWO, *both, "--ip", "192.168.100.10,192.168.101.10")
    assert "enp1s0f1np1:\n      mtu: 9000" in said.out
    assert "enP2p1s0f1np1:\n      mtu: 9000" in said.out
    assert "192.168.101.10/24" in said.out
    for addresses in ("192.168.100.10", "192.168.100.10,192.168.100.11"):
        cli(*TWO, *both, "--ip", addresses).failed(2, "links-unpaired")
