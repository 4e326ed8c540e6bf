"""`builder load` and `builder serve` with a real docker daemon: it pulls only what it lacks, by digest."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.share.library import Library
from builder.share.server import Server
from builder.store.store import Store
from tests.support.cli import Cli
from tests.support.registry import running
from tests.support.statements import new_key
from tests.support.terminal import terminal

pytestmark = pytest.mark.engine
NAME = "builder-test-load:1"


def docker(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=False)


@pytest.fixture
def loading(online: Cli) -> Iterator[Cli]:
    """`builder` with this machine's docker daemon."""
    if shutil.which("docker") is None or docker("version").returncode:
        pytest.skip("no docker daemon answers")
    online.environ |= {name: value for name, value in os.environ.items() if name.startswith("DOCKER_")}
    yield online
    listed = docker("images", "--digests", "--format", "{{.Repository}}:{{.Tag}} {{.Repository}}@{{.Digest}}").stdout
    for line in listed.splitlines():
        tagged, pinned = line.split()
        if "builder-test-load" in line or "/tiny@" in line:
            docker("image", "rm", "--force", pinned if tagged.endswith("<none>") else tagged)


def test_docker_pulls_only_what_it_lacks(loading: Cli) -> None:
    digest = loading("build", "--recipe", "tiny").out.strip()
    done = loading("load", "--recipe", "tiny", "--tag", NAME)
    assert (done.code, done.out) == (0, f"{NAME}\n"), done.err
    assert "docker pulled 4 of 4 layers" in done.err
    (found,) = json.loads(docker("image", "inspect", NAME).stdout)
    assert any(name.endswith(f"@{digest}") for name in found["RepoDigests"]), found["RepoDigests"]
    assert found["Architecture"] == "arm64"
    again = loading("load", "--recipe", "tiny", "--tag", NAME)
    assert again.code == 0 and "docker pulled 0 of 4 layers" in again.err
    loading.small.files["dockerfiles/layers/placed/layer.yaml"]["files"][0]["content"] = "changed\n"
    changed = loading("build", "--recipe", "tiny", "--load", "--tag", NAME)
    assert changed.code == 0 and "docker pulled 1 of 4 layers" in changed.err, changed.err
    (other,) = json.loads(docker("image", "inspect", NAME).stdout)
    assert any(name.endswith(f"@{changed.out.strip()}") for name in other["RepoDigests"])


def test_a_terminal_shows_how_far_docker_is(loading: Cli) -> None:
    assert loading("build", "--recipe", "tiny").code == 0
    command = [sys.executable, "-m", "builder", "load", "--recipe", "tiny", "--tag", NAME]
    with terminal(60) as (file, text):
        environ = loading.environment({"TERM": "xterm"})
        subprocess.run(command, cwd=loading.folder, env=environ, stdout=file, stderr=file, check=True, timeout=120)
        shown = text()
    assert "4 of 4 layers, unpacked " in shown and "docker pulled 4 of 4 layers" in shown


def test_docker_pulls_from_serve(loading: Cli) -> None:
    digest = loading("build", "--recipe", "tiny").out.strip()
    with Server(Library(Store(loading.folder / "store"))) as server:
        done = docker("pull", "--platform", "linux/arm64", f"{server.host}/tiny:tiny")
        assert done.returncode == 0 and digest in done.stdout, done.stderr
        assert docker("image", "rm", f"{server.host}/tiny:tiny").returncode == 0
    with Server(Library(Store(loading.folder / "store")), token="right") as server:
        assert docker("pull", "--platform", "linux/arm64", f"{server.host}/tiny:tiny").returncode != 0


@pytest.mark.skipif(shutil.which("docker-registry") is None, reason="docker-registry is not installed")
def test_docker_pulls_what_a_policy_allows(loading: Cli, tmp_path: Path) -> None:
    private, public = new_key(loading.folder, "own")
    _, stranger = new_key(loading.folder, "other")
    with running(tmp_path) as host:
        target = f"{host}/load/tiny:1"
        assert loading("build", "--recipe", "tiny").code == 0
        digest = loading("push", target, "--recipe", "tiny", "--key", str(private)).out.strip().rpartition("@")[2]
        words = ("load", target, "--tag", NAME)
        rules = loading.folder / "policy.yaml"
        rules.write_text(f"signed: [{{key: {stranger.name}}}]\n")
        loading(*words, "--policy", str(rules)).failed(4, "policy-unmet")
        assert docker("image", "inspect", NAME).returncode != 0
        rules.write_text(f"signed: [{{key: {public.name}}}]\n")
        done = loading(*words, "--policy", str(rules))
        assert (done.code, done.out) == (0, f"{NAME}\n"), done.err
    (found,) = json.loads(docker("image", "inspect", NAME).stdout)
    assert any(name.endswith(f"@{digest}") for name in found["RepoDigests"])


def test_one_image_is_named(cli: Cli) -> None:
    cli("load").failed(2, "load-image-missing")
    cli("load", "--recipe", "tiny", "a.example/b:1").failed(2, "load-two-images")
    cli("load", "--recipe", "tiny", "--policy", "x").failed(2, "policy-without-image")
