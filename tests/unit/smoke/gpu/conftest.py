from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.docker_daemon import docker_daemon
from tests.support.gpu_machine import Machine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A Spark with docker, and a peer."""
    with docker_daemon(tmp_path / "docker.sock") as docker, docker_daemon(tmp_path / "peer.sock") as peer:
        made = Machine(tmp_path, docker, peer)
        monkeypatch.setenv("PATH", f"{made.bin}:{os.environ['PATH']}")
        monkeypatch.setenv("DOCKER_HOST", docker.url)
        yield made
        assert not made.left(), "containers are removed, whatever happens"
