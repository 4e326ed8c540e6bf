"""The docker daemon through its API: requests, results, and errors by id."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from builder.engine.daemon import Daemon
from builder.errors import EngineError, PinError
from builder.events import Event
from tests.support.docker_daemon import docker_daemon
from tests.support.docker_state import DockerDaemon, FakeContainer
from tests.support.errors import fails
from tests.support.project import ROOT

PULLED = "registry.lan/team/app@sha256:" + "2" * 64


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerDaemon]:
    with docker_daemon(tmp_path / "docker.sock") as daemon:
        daemon.images["app:1"] = "sha256:" + "1" * 64
        for name in ("DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "config"))
        monkeypatch.setenv("DOCKER_HOST", daemon.url)
        yield daemon


def context(folder: Path, name: str, host: str, *, current: bool = False) -> None:
    """A context as `docker context create` stores it."""
    from hashlib import sha256

    meta = folder / "contexts/meta" / sha256(name.encode()).hexdigest()
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(
        json.dumps({"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": False}}})
    )
    (folder / "config.json").write_text(json.dumps({"currentContext": name} if current else {}))


class TestWhichDaemon:
    def test_docker_host(self, fake: DockerDaemon) -> None:
        with Daemon() as daemon:
            assert daemon.version() == "28.2.2"
            assert daemon.host == fake.url

    @pytest.mark.parametrize("current", [True, False])
    def test_a_context(
        self, fake: DockerDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, current: bool
    ) -> None:
        monkeypatch.delenv("DOCKER_HOST")
        context(tmp_path / "config", "far", fake.url, current=current)
        if not current:
            monkeypatch.setenv("DOCKER_CONTEXT", "far")
        with Daemon() as daemon:
            assert daemon.host == fake.url

    def test_docker_host_comes_before_a_context(self, fake: DockerDaemon, tmp_path: Path) -> None:
        context(tmp_path / "config", "far", "unix:///nowhere", current=True)
        with Daemon() as daemon:
            assert daemon.host == fake.url

    @pytest.mark.parametrize("damaged", [True, False])
    def test_a_context_that_cannot_be_used(
        self, fake: DockerDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
    ) -> None:
        monkeypatch.delenv("DOCKER_HOST")
        monkeypatch.setenv("DOCKER_CONTEXT", "far")
        context(tmp_path / "config", "far" if damaged else "other", fake.url)
        if damaged:
            (file,) = (tmp_path / "config").rglob("meta.json")
            file.write_text("{")
        with fails(EngineError, "docker-context-invalid"):
            Daemon()

    def test_ssh_is_a_socket_in_front_of_the_ssh_command(
        self, fake: DockerDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bridge = tmp_path / "ssh"
        bridge.write_text(
            f'#!/bin/sh\necho "$*" >{tmp_path}/argv\n'
            f"exec {sys.executable} -IS {ROOT}/tests/support/dial_stdio.py {fake.socket}\n"
        )
        bridge.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        with Daemon("ssh://me@spark-2:2222") as daemon:
            assert daemon.version() == "28.2.2"
            assert daemon.image_id("app:1") == fake.images["app:1"]
        argv = (tmp_path / "argv").read_text()
        assert argv.endswith("-l me -p 2222 -- spark-2 docker system dial-stdio\n")

    def test_ssh_that_fails_is_the_cause(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "ssh").write_text("#!/bin/sh\necho 'Permission denied (publickey).' >&2; exit 255\n")
        (tmp_path / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        with fails(EngineError, "docker-unreachable") as caught:
            Daemon("ssh://spark-2")
        assert caught.value.cause == "Permission denied (publickey)."


class TestUnusable:
    def test_no_socket(self, tmp_path: Path) -> None:
        with fails(EngineError, "docker-unreachable") as caught:
            Daemon(f"unix://{tmp_path}/none")
        assert caught.value.cause == "No such file or directory"

    def test_no_permission(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(socket.socket, "connect", refuse)
        with fails(EngineError, "docker-permission-denied"):
            Daemon(f"unix://{tmp_path}/docker.sock")

    def test_no_answer_in_time(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("builder.engine.daemon.TIMEOUT", 0.1)
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(tmp_path / "silent.sock"))
            silent.listen()
            with fails(EngineError, "docker-timeout"):
                Daemon(f"unix://{tmp_path}/silent.sock")


class TestImages:
    def test_logins_of_netrc_are_not_sent(
        self, fake: DockerDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """requests would send that of localhost, or the default one, to the daemon behind ssh."""
        (tmp_path / "netrc").write_text("machine localhost login me password x\ndefault login me password y\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        with Daemon() as daemon:
            daemon.pull(PULLED, login={"username": "a", "password": "b"})
        assert fake.calls and not fake.logins

    def test_an_id_or_none(self, fake: DockerDaemon) -> None:
        with Daemon() as daemon:
            assert daemon.image_id("app:1") == "sha256:" + "1" * 64
            assert daemon.image_id("app:2") is None
            daemon.remove_image("app:1")
            daemon.remove_image("app:1")
        assert fake.images == {}

    def test_an_archive_is_streamed(self, fake: DockerDaemon) -> None:
        parts = []

        def take(archive: bytes) -> str:
            parts.append(archive)
            return ""

        fake.load = take  # type: ignore[method-assign]
        with Daemon() as daemon:
            daemon.load(lambda file: [file.write(b"x" * 1_000_000) for _ in range(5)])
        assert parts == [b"x" * 5_000_000]

    def test_an_error_while_the_archive_is_written_is_raised(self, fake: DockerDaemon) -> None:
        def broken(file: IO[bytes]) -> None:
            file.write(b"begin")
            raise PinError("a layer is damaged", id="layer-damaged")

        with Daemon() as daemon, fails(PinError, "layer-damaged"):
            daemon.load(broken)

    def test_an_error_in_the_stream_of_a_load(self, fake: DockerDaemon) -> None:
        fake.load_problem = "archive/tar: invalid tar header"
        with Daemon() as daemon, fails(EngineError, "docker-refused") as caught:
            daemon.load(lambda file: file.write(b"x"))
        assert caught.value.cause == "archive/tar: invalid tar header"

    def test_a_load_whose_stream_breaks_off(self, fake: DockerDaemon) -> None:
        fake.load, fake.cut = lambda archive: "", True  # type: ignore[method-assign]
        with Daemon() as daemon, fails(EngineError, "docker-unreachable"):
            daemon.load(lambda file: file.write(b"x"))

    def test_an_image_is_pulled_by_its_digest(self, fake: DockerDaemon) -> None:
        with Daemon() as daemon:
            daemon.pull(PULLED)
            assert daemon.image_id(PULLED) == PULLED.partition("@")[2]
        assert "POST /images/create" in fake.calls

    def test_the_progress_of_a_pull_is_passed_on_and_nothing_else(self, fake: DockerDaemon) -> None:
        layer = "0123456789ab"
        fake.said = [
            {"status": "Pulling from app", "id": "latest"},
            {"status": "Pulling fs layer", "id": layer, "progressDetail": {}},
            {"status": "Downloading", "id": layer, "progressDetail": {"current": 5, "total": 10}},
            {"status": "Download complete", "id": layer, "progressDetail": None},
            {"status": "Extracting", "id": layer, "progressDetail": {"current": 3, "units": "s"}},
            {"status": "Extracting", "id": layer, "progressDetail": {"current": 1e300, "total": -1}},
            {"status": "Pull complete", "id": layer},
            {"status": "Pull complete", "id": "\x1b[2J"},
            {"status": ["Downloading"], "id": layer},
            {"status": "Downloading", "id": 7, "progressDetail": "x"},
        ]
        events: list[Event] = []
        with Daemon() as daemon:
            daemon.pull(PULLED, listener=events.append)
        fetched, unpacking = Event(layer, "fetching", 5, 10), Event(layer, "unpacking")
        assert events == [Event(layer, "waiting"), fetched, *[unpacking] * 3, Event(layer, "done")]

    def test_an_error_in_the_stream_of_a_pull(self, fake: DockerDaemon) -> None:
        fake.pull_problem = "failed to register layer: no space left on device"
        with Daemon() as daemon:
            with fails(EngineError, "docker-refused") as caught:
                daemon.pull(PULLED)
            assert caught.value.cause == "failed to register layer: no space left on device"
            assert daemon.image_id(PULLED) is None

    def test_a_pull_whose_stream_breaks_off(self, fake: DockerDaemon) -> None:
        fake.cut = True
        with Daemon() as daemon, fails(EngineError, "docker-unreachable"):
            daemon.pull(PULLED)


class TestContainers:
    def test_a_container_runs_and_is_removed(self, fake: DockerDaemon) -> None:
        def program(container: FakeContainer) -> int:
            container.print("to out\n")
            container.print("to err\n", 2)
            return 3

        fake.program = program
        with Daemon() as daemon:
            container = daemon.create("one", "app:1", ["sh", "-c", "x"], environment={"A": "b"}, network_mode="none")
            assert not container.state().running
            container.start()
            assert container.wait(10) == 3
            assert (container.log(stderr=False), container.log(stdout=False)) == ("to out\n", "to err\n")
            assert b"".join(container.follow()) == b"to out\nto err\n"
            assert (container.state().running, container.state().code) == (False, 3)
            container.remove()
            container.remove()
        (made,) = fake.containers
        assert (made.words, made.env, made.host["NetworkMode"]) == (["sh", "-c", "x"], {"A": "b"}, "none")
        assert not fake.left()

    def test_a_container_that_does_not_end_in_time(self, fake: DockerDaemon) -> None:
        fake.program = lambda container: int(container.asked.wait(60)) + 142
        with Daemon() as daemon:
            container = daemon.create("one", "app:1", [])
            container.start()
            begin = time.monotonic()
            assert container.wait(0.2) is None
            assert time.monotonic() - begin < 5
            assert [row.name for row in daemon.containers()] == ["one"]
            container.stop(5)
            assert container.state().code == 143
            container.remove()

    def test_removal_ends_the_wait_of_another_thread(self, fake: DockerDaemon) -> None:
        fake.program = lambda container: int(container.asked.wait(60)) + 136
        with Daemon() as daemon:
            container = daemon.create("one", "app:1", [])
            container.start()
            threading.Timer(0.2, container.remove).start()
            assert container.wait(60) == 137

    def test_a_missing_image_or_container(self, fake: DockerDaemon) -> None:
        with Daemon() as daemon:
            with fails(EngineError, "docker-refused"):
                daemon.create("one", "app:2", [])
            container = daemon.create("one", "app:1", [])
            container.remove()
            with fails(EngineError, "docker-refused"):
                container.state()

    def test_a_container_that_does_not_start(self, fake: DockerDaemon) -> None:
        fake.refuse = lambda container: "could not select device driver"
        with Daemon() as daemon:
            container = daemon.create("one", "app:1", [])
            with fails(EngineError, "docker-refused") as caught:
                container.start()
            assert caught.value.cause == "could not select device driver"
            container.remove()
