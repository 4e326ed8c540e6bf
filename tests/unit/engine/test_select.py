"""Selection of the engine, and the error without a usable one."""

from __future__ import annotations

import pytest

from builder.engine.select import select_engine
from builder.errors import EngineError, ExitCode, UsageError
from tests.support.errors import fails
from tests.unit.engine.conftest import Programs


def test_docker_comes_first(programs: Programs) -> None:
    programs.docker()
    programs.buildah()
    assert select_engine(None).name == select_engine("auto").name == "docker"
    assert select_engine("buildah").name == "buildah"


def test_buildah_where_dockers_daemon_does_not_answer(programs: Programs) -> None:
    programs.docker(daemon=False)
    programs.buildah()
    assert select_engine("auto").name == "buildah"


def test_the_environment_chooses_unless_the_command_line_does(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs.docker()
    programs.buildah()
    monkeypatch.setenv("BUILDER_ENGINE", "buildah")
    assert select_engine(None).name == "buildah"
    assert select_engine("docker").name == "docker"


def test_without_an_engine_the_error_has_every_problem_and_a_package(programs: Programs) -> None:
    programs.docker(daemon=False)
    with fails(EngineError, "engine-missing") as caught:
        select_engine("auto")
    error = caught.value
    assert error.code == ExitCode.ENGINE
    assert "docker's daemon" in error.what and "buildah" in error.what, "both problems are named"
    assert "buildah" in error.next


def test_a_chosen_engine_is_not_replaced(programs: Programs) -> None:
    programs.buildah()
    with fails(EngineError, "engine-missing") as caught:
        select_engine("docker")
    assert "Docker" in caught.value.next


def test_unknown_names(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    with fails(UsageError, "engine-unknown") as caught:
        select_engine("podman")
    assert caught.value.next == "one of auto, docker, buildah"
    monkeypatch.setenv("BUILDER_ENGINE", "rocket")
    with fails(UsageError, "engine-unknown") as caught:
        select_engine(None)
    assert caught.value.where == "BUILDER_ENGINE"


def test_a_builder_needs_docker(programs: Programs) -> None:
    programs.docker(daemon=False)
    programs.buildah()
    assert select_engine("auto", ["far-away"]).name == "docker"
    with fails(UsageError, "engine-takes-no-builder"):
        select_engine("buildah", ["far-away"])
