"""The cpu tier's docker runner, against a real daemon."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.smoke.check import CheckNotRun
from builder.smoke.cpu import docker as dockerrun
from builder.smoke.cpu.docker import DockerRunner
from builder.smoke.cpu.runner import Command, run
from builder.smoke.image.opened import open_image
from tests.support.images import layout
from tests.support.programs import own_programs

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module", params=["zstd", "gzip"])
def docker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRunner]:
    where = tmp_path_factory.mktemp("docker")
    layers = [own_programs(), {"opt/third": b"x"}, {"opt/second": request.param.encode()}]
    image = open_image(layout(where, layers, how=request.param, Env=["PATH=/usr/bin", "A=b c"]))
    patch = pytest.MonkeyPatch()
    # The programs are this machine's, whatever the image says: no qemu is needed.
    patch.setattr(dockerrun, "native", lambda: True)
    try:
        runner = DockerRunner(image, where)
    except CheckNotRun as reason:
        if "daemon does not answer" in str(reason):
            pytest.skip(str(reason))
        raise
    finally:
        patch.undo()
    yield runner
    runner.close()
    assert subprocess.run(["docker", "image", "inspect", runner.tag], capture_output=True, check=False).returncode != 0


def test_commands_run(docker: DockerRunner) -> None:
    done = run(docker, Command(["sh", "-c", "id -u; echo $A $B; cat /opt/second"], {"B": "x"}, "1000:1000"), 60)
    assert done.code == 0, done.output
    assert done.output.split() == ["1000", "b", "c", "x", docker_param(docker)]
    assert run(docker, Command(["sh", "-c", "exit 3"]), 60).code == 3


def test_a_killed_command_leaves_no_container(docker: DockerRunner) -> None:
    start = time.monotonic()
    assert run(docker, Command(["sleep", "61"]), 3).code is None
    assert time.monotonic() - start < 30
    listed = subprocess.run(
        ["docker", "ps", "-aq", "--filter", f"ancestor={docker.tag}"], capture_output=True, check=True
    )
    assert not listed.stdout.strip()


def test_the_images_on_the_way_are_removed(docker: DockerRunner) -> None:
    """With a graph driver an image is loaded layer by layer."""
    ids = subprocess.run(["docker", "images", "--all", "--quiet"], capture_output=True, check=True).stdout.split()
    shown = subprocess.run(["docker", "image", "inspect", *ids], capture_output=True, check=True).stdout
    found = {item["Id"]: item["RootFS"]["Layers"] for item in json.loads(shown)}
    [ours] = found.keys() & docker._ids
    assert [item for item in found.values() if item == found[ours][: len(item)]] == [found[ours]]


def docker_param(docker: DockerRunner) -> str:
    """How the layers of this image are compressed."""
    return "zstd" if docker.image.layers[0].path.read_bytes()[:4] == b"\x28\xb5\x2f\xfd" else "gzip"


def test_no_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    with pytest.raises(CheckNotRun, match="does not answer"):
        DockerRunner(open_image(layout(tmp_path, [{"a": b""}])), tmp_path)
