"""The fixtures that `tests/conftest.py` offers to every test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from builder.model.plan import Plan
from builder.plan.resolve import Sets, resolve
from builder.project import Project
from builder.store.store import Store
from tests.support import mirror as mirrors
from tests.support.cli import Cli
from tests.support.engine import FakeEngine
from tests.support.mirror import Mirror
from tests.support.project import WIDGET, Sample, sample, write_files

MakeProject = Callable[[Mapping[str, Any]], Project]
MakePlan = Callable[..., Plan]


@pytest.fixture
def make_project(tmp_path: Path) -> MakeProject:
    """Makes a project from a dict of files: text, bytes, or values to be written as YAML or JSON."""
    return lambda files: Project((write_files(tmp_path / "project", files),))


@pytest.fixture
def small() -> Sample:
    """A small whole project, not yet on disk."""
    return sample()


@pytest.fixture
def make_plan(small: Sample, tmp_path: Path) -> MakePlan:
    """Writes the small project as it is now and resolves its recipe."""

    def made(*, sets: Sets | None = None, **more: Any) -> Plan:
        project = small.write(tmp_path / "project")
        return resolve(project, project.recipe("tiny"), sets=sets, **more)

    return made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "store")


@pytest.fixture
def mirror(small: Sample, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """Serves the small project's inputs; this machine is configured to use it and nothing else."""
    with mirrors.running() as started:
        small.serve(started)
        for name, value in started.environment.items():
            monkeypatch.setenv(name, value)
        yield started


@pytest.fixture
def engine() -> FakeEngine:
    """An engine that makes the small project's compiled layer."""
    return FakeEngine({"compiled": WIDGET})


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


@pytest.fixture
def cli(tmp_path: Path, small: Sample) -> Cli:
    """Runs `builder` on the small project."""
    return Cli(tmp_path, small)


@pytest.fixture
def online(cli: Cli, mirror: Mirror) -> Cli:
    """On this machine the small project's inputs can be had; nothing of it is compiled."""
    cli.environ |= mirror.environment
    cli.small.files["recipes/tiny.yaml"]["layers"].remove("compiled")
    return cli
