from __future__ import annotations

import os
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from builder.smoke.gpu.docker import Docker, Done
from tests.unit.smoke.fake_docker import FakeDocker
from tests.unit.smoke.gpu_machine import Machine


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Its docker is a program."""
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{made.bin}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_DOCKER", str(made.home))
    yield made
    assert not made.left(), "containers are removed, whatever happens"


@pytest.fixture
def machine(real: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Its docker is a function, which is quicker."""

    threads: dict[str, ThreadingHTTPServer] = {}

    def call(docker: Docker, *words: str, timeout: float = 60) -> Done:
        return Done(*FakeDocker(real.home, bool(docker.peer), threads)(*words))

    monkeypatch.setattr(Docker, "__call__", call)
    return real
