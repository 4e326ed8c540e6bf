"""The docker engine: the commands it runs, and results and errors from their output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from builder.digest import Digest
from builder.engine.docker import PROXIES, DockerEngine
from builder.engine.interface import BuildRequest, EngineInfo, LayoutError, LocalBase
from builder.errors import EngineError, ExitCode
from builder.parallel import every
from tests.support.errors import fails
from tests.unit.engine.conftest import Programs

Request = Callable[..., BuildRequest]


def test_a_build_is_one_command_without_network_or_cache(
    programs: Programs, request_for: Request, tmp_path: Path
) -> None:
    programs.docker(build="printf 'the tar'; echo '#1 doing' >&2; echo '#2 done' >&2")
    lines: list[str] = []
    request = request_for()
    DockerEngine().build(request, tmp_path / "layer.tar", lines.append)
    assert programs.calls("docker") == [
        [
            *("buildx", "build", "--file", str(request.dockerfile), "--target", "one", "--platform", "linux/arm64"),
            *("--network", "none", "--no-cache", "--provenance=false", "--sbom=false", "--progress=plain"),
            *("--output", "type=tar,dest=-", "--build-arg", "JOBS=7"),
            *(word for name in PROXIES for word in ("--build-arg", f"{name}=")),
            str(request.context),
        ]
    ]
    assert {"http_proxy", "HTTPS_PROXY", "NO_PROXY"} <= set(PROXIES)
    assert (tmp_path / "layer.tar").read_bytes() == b"the tar"
    assert lines == ["#1 doing", "#2 done"]


def test_steps_have_no_network_when_the_daemon_pulls_a_base(
    programs: Programs, request_for: Request, tmp_path: Path
) -> None:
    programs.docker()
    DockerEngine().build(request_for(pull="registry.lan/a/b:1@sha256:aa"), tmp_path / "layer.tar", print)
    (call,) = programs.calls("docker")
    assert call[call.index("--network") + 1] == "none"


def test_a_local_base_replaces_the_reference_of_a_stage(
    programs: Programs, request_for: Request, tmp_path: Path
) -> None:
    programs.docker()
    base = LocalBase(
        "registry.lan/a/b:1@sha256:aa", Digest.from_hex("a" * 64), Digest.from_hex("c" * 64), tmp_path / "base"
    )
    DockerEngine().build(request_for(base=base), tmp_path / "layer.tar", print)
    (call,) = programs.calls("docker")
    assert call[call.index("--network") + 1] == "none"
    assert call[call.index("--build-context") + 1] == (
        f"registry.lan/a/b:1@sha256:aa=oci-layout://{tmp_path / 'base'}@sha256:{'a' * 64}"
    )


def test_a_daemon_that_reads_no_layouts_raises_layout_error(
    programs: Programs, request_for: Request, tmp_path: Path
) -> None:
    # The message of moby 26.1 without the containerd image store.
    programs.docker(build="echo '#2 ERROR: unknown scheme oci-layout: not found' >&2; exit 1")
    with fails(LayoutError, "engine-layout-unsupported") as caught:
        DockerEngine().build(request_for(), tmp_path / "layer.tar", print)
    assert "--engine buildah" in caught.value.next


def test_any_buildx_builder_can_be_named(programs: Programs, request_for: Request, tmp_path: Path) -> None:
    programs.docker()
    DockerEngine("far-away").build(request_for(), tmp_path / "layer.tar", print)
    assert programs.calls("docker")[0][:4] == ["buildx", "build", "--builder", "far-away"]


def test_a_failed_build_shows_its_last_lines(programs: Programs, request_for: Request, tmp_path: Path) -> None:
    programs.docker(build="i=0; while [ $i -lt 50 ]; do echo line $i >&2; i=$((i+1)); done; exit 3")
    with fails(EngineError, "engine-build-failed") as caught:
        DockerEngine().build(request_for(), tmp_path / "layer.tar", lambda line: None)
    assert caught.value.code == ExitCode.ENGINE
    assert "line 49" in caught.value.cause
    assert "line 38" in caught.value.cause
    assert "line 37" not in caught.value.cause
    assert "--verbose" in caught.value.next


def test_usable(programs: Programs) -> None:
    programs.docker()
    assert DockerEngine().probe() == EngineInfo("docker", "0.13.1")
    assert DockerEngine().probe().usable


def test_not_installed(programs: Programs) -> None:
    info = DockerEngine().probe()
    assert (info.usable, info.problem) == (False, "the command docker is not installed")
    assert "install Docker" in info.fix


def test_without_buildx(programs: Programs) -> None:
    programs.docker(buildx=False)
    assert DockerEngine().probe().problem == "docker has no buildx plugin"


def test_without_a_daemon(programs: Programs) -> None:
    programs.docker(daemon=False)
    assert DockerEngine().probe().problem == "docker's daemon does not answer"


def test_a_remote_builder_needs_no_local_daemon(programs: Programs) -> None:
    programs.docker(daemon=False)
    assert DockerEngine("far-away").probe().usable


def test_a_docker_that_hangs_is_not_usable(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builder.engine.process.capture.__kwdefaults__", {"timeout": 0.2})
    programs.add("docker", "while :; do :; done")
    assert not DockerEngine().probe().usable


def test_a_docker_without_permission_to_run(programs: Programs) -> None:
    programs.add("docker")
    (programs.folder / "docker").chmod(0o644)
    assert DockerEngine().probe().problem == "the command docker is not installed"


def test_several_builders_share_the_targets(programs: Programs, request_for: Request, tmp_path: Path) -> None:
    programs.docker(build="/bin/sleep 0.3")
    engine = DockerEngine("one", "two")
    assert (engine.workers, DockerEngine().workers) == (2, 1)
    lines: list[str] = []
    every(lambda number: engine.build(request_for(), tmp_path / f"{number}.tar", lines.append), range(4))
    assert sorted(call[3] for call in programs.calls("docker")) == ["one", "one", "two", "two"]
    assert sorted(lines) == ["on the builder one"] * 2 + ["on the builder two"] * 2
