"""The docker runner of the cpu tier, against a daemon without containers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.smoke.cpu import docker as dockerrun
from builder.smoke.cpu.docker import DockerRunner
from builder.smoke.cpu.runner import TAIL, Command, run
from builder.smoke.image.opened import open_image
from tests.support.docker_daemon import docker_daemon
from tests.support.docker_state import DockerDaemon, FakeContainer
from tests.support.images import layout


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerDaemon]:
    monkeypatch.setattr(dockerrun, "native", lambda: True)
    with docker_daemon(tmp_path / "docker.sock") as made:
        monkeypatch.setenv("DOCKER_HOST", made.url)
        yield made
        assert made.left() == []


@pytest.fixture
def runner(daemon: DockerDaemon, tmp_path: Path) -> Iterator[DockerRunner]:
    image = open_image(layout(tmp_path / "image", [{"opt/a": b""}]))
    daemon.images[f"builder-smoke:{image.digest.hex[:24]}"] = image.digest
    made = DockerRunner(image, tmp_path)
    yield made
    made.close()


def test_output_and_standard_error_are_apart_and_bounded(daemon: DockerDaemon, runner: DockerRunner) -> None:
    def speak(container: FakeContainer) -> int:
        container.print("out\n")
        for number in range(100):
            container.print(f"{number} {'x' * 10_000}\n", 2)
        return 3

    daemon.program = speak
    done = run(runner, Command(["speak"], apart=True), 30)
    assert (done.code, done.output) == (3, "out\n")
    assert len(done.errors) == TAIL and done.errors.endswith("x\n") and "\n99 x" in done.errors
    done = run(runner, Command(["speak"]), 30)
    assert done.errors == "" and "\n99 x" in done.output


def test_the_daemon_keeps_a_bounded_output(daemon: DockerDaemon, runner: DockerRunner) -> None:
    run(runner, Command(["speak"]), 30)
    assert int(daemon.containers[0].host["LogConfig"]["Config"]["max-size"]) < 1 << 30


def test_a_container_that_does_not_start_says_why(daemon: DockerDaemon, runner: DockerRunner) -> None:
    daemon.refuse = lambda container: "no such program"
    for apart in (False, True):
        done = run(runner, Command(["speak"], apart=apart), 30)
        assert done.code == 127 and "no such program" in (done.errors if apart else done.output)


def test_variables_of_the_image_ask_for_no_devices(daemon: DockerDaemon, runner: DockerRunner) -> None:
    """Docker may start every container with NVIDIA's runtime, which runs programs outside of it as the image asks."""
    run(runner, Command(["speak"], {"NVIDIA_VISIBLE_DEVICES": "all"}), 30)
    assert daemon.containers[0].host["Runtime"] == "runc"
    assert "NVIDIA_VISIBLE_DEVICES=void" in daemon.containers[0].body["Env"]


def test_an_engine_without_runc_has_its_own(daemon: DockerDaemon, tmp_path: Path) -> None:
    daemon.info = {"Runtimes": {"crun": {}}}
    image = open_image(layout(tmp_path / "image", [{"opt/a": b""}]))
    daemon.images[f"builder-smoke:{image.digest.hex[:24]}"] = image.digest
    with contextlib.closing(DockerRunner(image, tmp_path)) as made:
        assert run(made, Command(["speak"]), 30).code == 0
    assert not daemon.containers[0].host.get("Runtime")
