"""The buildah engine: namespaces of its own, private storage, no network."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.engine.buildah import _ALONE, BuildahEngine, _namespaces, _own_processes
from builder.engine.interface import BuildRequest, EngineInfo, host_architecture
from builder.engine.process import run
from builder.errors import EngineError
from tests.support.dockerfile import Instruction, parse, stages
from tests.support.errors import fails
from tests.unit.engine.conftest import Programs

Request = Callable[..., BuildRequest]
TOOLCHAIN = (Path(__file__).resolve().parents[3] / "dockerfiles/toolchain.Dockerfile.j2").read_text("utf-8")


@pytest.fixture(params=[0, 1000], ids=["root", "user"])
def user(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("os.geteuid", lambda: request.param)
    return int(request.param)


def namespaces(user: int, network: bool = False) -> list[str]:
    words = ["--mount", "--fork", "--kill-child", "--pid", "--mount-proc"]
    words += [] if network else ["--net", "--uts"]
    return words + ([] if user == 0 else ["--map-root-user", "--map-auto", "--user"])


def test_a_build_is_one_command_in_namespaces_of_its_own(
    programs: Programs, request_for: Request, tmp_path: Path, user: int
) -> None:
    programs.buildah(build="echo STEP 1/2; echo STEP 2/2 >&2")
    lines: list[str] = []
    request = request_for()
    tar = tmp_path / "layer.tar"
    BuildahEngine().build(request, tar, lines.append)
    expected = [
        *(
            "--root",
            str(request.work / "storage"),
            "--runroot",
            str(request.work / "run"),
            "--storage-driver",
            "overlay",
        ),
        *("build", "--isolation", "chroot", "--layers=false", "--format", "oci"),
        *("--uts", "host", "--no-hosts", "--dns", "none", "--volume", f"{request.work}/hosts:/etc/hosts:ro"),
        *("--platform", "linux/arm64"),
        *("--pull-never", "--http-proxy=false"),
        *("--file", f"{request.work}/buildah.Dockerfile", "--target", "one", "--build-arg", "JOBS=7"),
        *(
            "--build-arg",
            f"BUILDPLATFORM=linux/{host_architecture()}",
            "--build-arg",
            f"BUILDARCH={host_architecture()}",
        ),
        *("--output", f"type=tar,dest={tar}", str(request.context)),
    ]
    assert programs.calls("buildah") == [expected]
    alone = ["sh", "-c", _ALONE, "sh", "buildkitsandbox", str(request.work), str(request.context), "buildah"]
    assert programs.calls("unshare")[-1] == [*namespaces(user), *alone, *expected]
    assert sorted(lines) == ["STEP 1/2", "STEP 2/2"]


def test_a_base_is_pulled_with_network_and_the_steps_have_none(
    programs: Programs, request_for: Request, tmp_path: Path
) -> None:
    programs.buildah()
    BuildahEngine().build(request_for(pull="registry.lan/a/b:1@sha256:aa"), tmp_path / "layer.tar", print)
    pull, build = [words for words in programs.calls("unshare") if "buildah" in words]
    assert pull[-5:] == ["pull", "--quiet", "--platform", "linux/arm64", "registry.lan/a/b:1@sha256:aa"]
    assert "--net" not in pull
    assert "build" in build and "--net" in build and "--pull-never" in build
    assert build[build.index("--root") + 1] == pull[pull.index("--root") + 1]


def test_a_pull_that_fails_ends_the_build(programs: Programs, request_for: Request, tmp_path: Path) -> None:
    programs.buildah(build='case "$*" in *" pull "*) echo "no such image"; exit 125 ;; esac')
    with fails(EngineError, "engine-build-failed") as caught:
        BuildahEngine().build(request_for(pull="registry.lan/a/b:1@sha256:aa"), tmp_path / "layer.tar", print)
    assert "no such image" in caught.value.cause
    assert len(programs.calls("buildah")) == 1


def test_where_overlay_cannot_be_mounted_files_are_copied(
    programs: Programs, request_for: Request, tmp_path: Path
) -> None:
    programs.buildah()
    programs.add("mount", "exit 32")
    request = request_for()
    BuildahEngine().build(request, tmp_path / "layer.tar", print)
    (call,) = programs.calls("buildah")
    assert call[call.index("--storage-driver") + 1] == "vfs"
    assert not (request.work / "overlay-probe").exists()


@pytest.fixture
def given(programs: Programs, request_for: Request, tmp_path: Path) -> Callable[[str], str]:
    """The Dockerfile that buildah gets for stages after the toolchain's."""

    def build(stages: str) -> str:
        request = request_for()
        request.dockerfile.write_text(f"{TOOLCHAIN}\n{stages}")
        BuildahEngine().build(request, tmp_path / "layer.tar", print)
        return (request.work / "buildah.Dockerfile").read_text()

    programs.buildah()
    return build


def test_a_stage_that_alone_starts_from_the_toolchain_unpacks_it(given: Callable[[str], str]) -> None:
    text = given("FROM toolchain AS one-build\nRUN make\n\nFROM scratch AS one\nCOPY --from=one-build /out /\n")
    found = stages(parse(text))
    assert list(found) == ["one-build", "one"]
    first, *others = found["one-build"]
    assert (first.name, first.rest) == ("ADD", f"toolchain-{host_architecture()}.tar /")
    assert others == [*stages(parse(TOOLCHAIN))["toolchain"][2:], Instruction("RUN", "make")]
    assert text.startswith("FROM --platform=$BUILDPLATFORM scratch AS one-build\n")


@pytest.mark.parametrize(
    "others",
    [
        "FROM toolchain AS a\nRUN make\n\nFROM toolchain AS b\nRUN make\n",
        "FROM toolchain AS a\nRUN make\n\nFROM scratch AS b\nCOPY --from=toolchain /usr /usr\n",
        "FROM toolchain AS a\nRUN make\n\nFROM scratch AS b\nRUN --mount=from=toolchain,target=/t /t/bin/true\n",
        "FROM scratch AS a\nCOPY file /\n\nFROM toolchain AS b\nRUN make\n",
        "FROM scratch AS a\nCOPY file /\n",
    ],
)
def test_other_stages_stay(given: Callable[[str], str], others: str) -> None:
    assert given(others) == f"{TOOLCHAIN}\n{others}"


def test_its_environment(programs: Programs, request_for: Request, tmp_path: Path, user: int) -> None:
    names = "TMPDIR BUILDAH_ISOLATION _CONTAINERS_USERNS_CONFIGURED _CONTAINERS_ROOTLESS_UID"
    programs.buildah(build=f'for n in {names}; do eval "echo $n=\\$$n"; done')
    lines: list[str] = []
    request = request_for()
    BuildahEngine().build(request, tmp_path / "layer.tar", lines.append)
    shown = dict(line.split("=", 1) for line in lines)
    assert shown["TMPDIR"] == str(request.work)
    assert shown["BUILDAH_ISOLATION"] == "chroot"
    assert shown["_CONTAINERS_USERNS_CONFIGURED"] == ("" if user == 0 else "done")


def test_a_failed_build_shows_its_last_lines(programs: Programs, request_for: Request, tmp_path: Path) -> None:
    programs.buildah(build="echo 'error building: no such file'; exit 125")
    with fails(EngineError, "engine-build-failed") as caught:
        BuildahEngine().build(request_for(), tmp_path / "layer.tar", lambda line: None)
    assert "error building: no such file" in caught.value.cause


def test_usable(programs: Programs) -> None:
    programs.buildah()
    assert BuildahEngine().probe() == EngineInfo("buildah", "1.28.2")


@pytest.mark.parametrize(
    "version", ["buildah version 1.39.3 (image-spec 1.1.0)", "buildah version 2.0", "buildah version 1.28.0-dev"]
)
def test_newer_versions_are_usable(programs: Programs, version: str) -> None:
    programs.buildah(version=version)
    assert BuildahEngine().probe().usable


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("buildah version 1.27.4", "buildah 1.27.4 is too old"),
        ("buildah version 0.99", "buildah 0.99.0 is too old"),
        ("what is this", "buildah does not start"),
    ],
)
def test_too_old(programs: Programs, version: str, problem: str) -> None:
    programs.buildah(version=version)
    info = BuildahEngine().probe()
    assert (info.usable, info.problem) == (False, problem)
    assert "1.28 or newer" in info.fix


def test_not_installed(programs: Programs) -> None:
    assert BuildahEngine().probe().problem == "the command buildah is not installed"


def test_broken(programs: Programs) -> None:
    programs.add("buildah", "exit 1")
    assert BuildahEngine().probe().problem == "buildah does not start"


def test_without_permission_for_namespaces(programs: Programs, user: int) -> None:
    programs.buildah()
    programs.add("unshare", "echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1")
    info = BuildahEngine().probe()
    assert "namespaces cannot be created here: unshare: unshare failed: Operation not permitted" in info.problem
    assert ("CAP_SYS_ADMIN" in info.fix) == (user == 0)
    programs.add("unshare", "exit 1")
    assert BuildahEngine().probe().problem.endswith("namespaces cannot be created here: exit status 1")


@pytest.mark.parametrize("logged_in", [False, True])
def test_a_folder_of_settings_without_logins_does_not_stop_a_pull(
    programs: Programs, request_for: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged_in: bool
) -> None:
    """buildah 1.28 fails when DOCKER_CONFIG names a folder without config.json."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)
    if logged_in:
        (tmp_path / "config.json").write_text("{}")
    programs.buildah(build='case "$*" in *" pull "*) echo "logins: $REGISTRY_AUTH_FILE" ;; esac')
    lines: list[str] = []
    request = request_for(pull="registry.lan/a/b:1@sha256:aa")
    BuildahEngine().build(request, tmp_path / "layer.tar", lines.append)
    assert lines == ["logins:" if logged_in else f"logins: {request.work / 'logins.json'}"]


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_a_step_that_leaves_its_chroot_finds_no_home_and_no_store(tmp_path: Path) -> None:
    """As root, of the machine or of namespaces, a step leaves a chroot with two more of them."""
    _own_processes.cache_clear()
    (tmp_path / "home").mkdir()
    (tmp_path / "home/secret").write_text("secret")
    work = tmp_path / "store/tmp/build"
    (work / "context").mkdir(parents=True)
    (work / "context/input").write_text("as locked")
    source = tmp_path / "escape.c"
    source.write_text(
        "#include <sys/stat.h>\n#include <unistd.h>\n"
        'int main(int count, char **words) { mkdir("/x", 0755); if (chroot("/x")) return 99;\n'
        'for (int n = 0; n < 64; n++) chdir(".."); return chroot(".") ? 98 : execv(words[1], words + 1); }'
    )
    subprocess.run(["gcc", "-static", "-o", work / "escape", source], check=True)
    script = (
        f"cat {tmp_path}/home/secret; echo written > {tmp_path}/home/new; echo changed > {work}/context/input; "
        f"ls {tmp_path} {tmp_path}/store/tmp; hostname; ls /home /root; test -w /etc/passwd && echo writable; exit 0"
    )
    argv = [*_namespaces(network=False), "sh", "-c", _ALONE, "sh", "buildkitsandbox", str(work), str(work / "context")]
    outcome = run([*argv, "/usr/sbin/chroot", "/", f"{work}/escape", "/bin/sh", "-c", script], log=print)
    assert outcome.status == 0
    told = [line for line in outcome.tail if not line.startswith(("cat:", "ls:", "/bin/sh:"))]
    assert told == [f"{tmp_path}:", "store", f"{tmp_path}/store/tmp:", "build", "buildkitsandbox"]
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["secret"]
    assert (work / "context/input").read_text() == "as locked"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount something below /usr")
def test_what_is_mounted_below_a_folder_of_programs_cannot_be_written(tmp_path: Path) -> None:
    """Such as another disk at /opt/data, which may be the user's."""
    _own_processes.cache_clear()
    (tmp_path / "work/context").mkdir(parents=True)
    place = "/usr/share/doc"
    mounted = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o noexec,noatime tmpfs {place}; exec "$@"', "sh"]
    alone = ["sh", "-c", _ALONE, "sh", "buildkitsandbox", f"{tmp_path}/work", f"{tmp_path}/work/context"]
    script = f"for folder in {place} {tmp_path}/work; do test -w $folder && echo $folder; done; exit 0"
    outcome = run([*mounted, *_namespaces(network=False), *alone, "sh", "-c", script], log=print)
    assert (outcome.status, outcome.tail) == (0, (f"{tmp_path}/work",))


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
def test_what_a_step_leaves_in_the_background_ends_with_the_build() -> None:
    _own_processes.cache_clear()
    argv = _namespaces(network=False)
    if "--pid" not in argv:
        pytest.skip("namespaces of processes cannot be created here")
    mark = f"{random.random()}"
    outcome = run([*argv, "sh", "-c", f"setsid sleep 300{mark[1:]} >&2 & echo begun"], log=print)
    assert outcome.tail == ("begun",)
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert [line for line in lines if mark[1:].encode() in line] == []
