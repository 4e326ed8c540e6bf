"""Two images, built on two different machines; all tests here use them.

nemotron-omni is built by buildah and compared with its golden digest. The small image, which has every kind of layer,
is built by buildah and by docker. So NCCL is compiled once per run; the nightly job has docker compile it too. Inputs
(4 GB) stay in the cache of the tests between runs; everything else is built in each run. With BUILDER_NIGHTLY set,
tests cover more, see `nightly`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from builder.digest import Digest
from builder.plan.resolve import resolve
from builder.project import Project
from builder.store.store import Store
from tests.e2e import small_project
from tests.e2e.machines import Machine, without_emulation
from tests.support.cache import INPUTS, TESTS_CACHE, seed_inputs

nightly = pytest.mark.skipif("BUILDER_NIGHTLY" not in os.environ, reason="takes long: in the nightly job")
BUILDER = [sys.executable, "-m", "builder"]
# Few of NCCL's functions: compiling all of them takes a quarter of an hour.
WHAT = ["--recipe", "nemotron-omni", "--base", "hermetic", "--set", "nccl.functions=AllReduce Sum f32 RING LL"]
SMALL = ["--recipe", small_project.RECIPE]


@dataclass(frozen=True)
class Build:
    """A finished build: the image's digest, its store, its standard error, and the machine."""

    digest: Digest
    store: Path
    log: str
    machine: Machine


def builder(*arguments: str, store: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run `builder` on this machine."""
    every = {**os.environ, "BUILDER_STORE": str(store), **(env or {})}
    return subprocess.run([*BUILDER, *arguments], env=every, capture_output=True, text=True, check=False, timeout=3000)


@pytest.fixture(scope="session", autouse=True)
def _needs() -> None:
    if os.geteuid() != 0:
        pytest.skip("namespaces and chroots of the end-to-end tests need root")
    missing = [name for name in ("buildah", "docker", "unshare", "faketime", "skopeo") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"scripts/test installs {', '.join(missing)}")


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A large folder on the file system of the cache, so that inputs can be hard-linked."""
    for old in TESTS_CACHE.glob("run-*"):
        # Files of a killed run: tens of gigabytes.
        if not Path("/proc", old.name.removeprefix("run-")).exists():
            shutil.rmtree(old, ignore_errors=True)
    work = TESTS_CACHE / f"run-{os.getpid()}"
    work.mkdir(parents=True)
    work.chmod(0o755)
    yield work
    shutil.rmtree(work, ignore_errors=True)


@pytest.fixture(scope="session")
def inputs() -> Path:
    """A store that keeps the inputs from one run to the next."""
    return INPUTS


@pytest.fixture(scope="session")
def context(folder: Path, inputs: Path) -> Path:
    """The output of `render --context`, which fetches every input and unpacks the toolchains."""
    target = folder / "context"
    project = Project()
    plan = resolve(project, project.recipe("nemotron-omni"), base="hermetic")
    seed_inputs(item.digest for layer in (*plan.layers, *plan.toolchains) for item in layer.inputs)
    done = builder("render", *WHAT, "--context", str(target), store=inputs)
    assert done.returncode == 0, done.stderr
    return target


def fresh_store(inputs: Path, target: Path) -> Path:
    """A store with nothing but inputs, as a mirror or an earlier download would have left them."""
    blobs = target / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for blob in (inputs / "blobs" / "sha256").iterdir():
        (blobs / blob.name).hardlink_to(blob)
    return target


def build_on(machine: Machine, store: Path, engine: str, what: list[str], env: dict[str, str] | None = None) -> Build:
    """Build an image there, offline."""
    measured = ["/usr/bin/time", "-f", "peak %M kB", *BUILDER] if Path("/usr/bin/time").exists() else BUILDER
    done = machine.run([*measured, "build", *what, "--engine", engine, "--offline"], store, env)
    assert done.returncode == 0, done.stderr[-4000:]
    return Build(Digest(done.stdout.strip()), store, done.stderr, machine)


@dataclass(frozen=True)
class Builds:
    """What two machines built. full: nemotron-omni by buildah. by_buildah, by_docker: the small image."""

    full: Build
    by_buildah: Build
    by_docker: Build


@pytest.fixture(scope="session")
def alpha(folder: Path) -> Machine:
    """A machine whose user is root."""
    return Machine("spark-alpha", "192.0.2.53", folder / "alpha", env={"TZ": "Pacific/Auckland", "LC_ALL": "C"})


@pytest.fixture(scope="session")
def beta(folder: Path) -> Machine:
    """A machine with another user, folder, umask, locale, time zone and date."""
    env = {"TZ": "America/St_Johns", "LC_ALL": "C.UTF-8", "LANG": "tr_TR.UTF-8", "HOME": "/nonexistent"}
    where = folder / "beta" / "deep" / "er"
    return Machine("spark-beta", "198.51.100.77", where, umask=0o077, env=env, date="2031-05-06 07:08:09", user=23456)


@pytest.fixture(scope="session")
def small(inputs: Path, folder: Path) -> dict[str, str]:
    """The environment in which `builder` reads the small project; its inputs are in the cache."""
    return {"BUILDER_PROJECT": str(small_project.write_project(folder / "small", Store(inputs)))}


@pytest.fixture(scope="session")
def builds(context: Path, inputs: Path, folder: Path, alpha: Machine, beta: Machine, small: dict[str, str]) -> Builds:
    """Two machines build at the same time, with no way to run arm64 code."""
    ours, theirs = (fresh_store(inputs, folder / name) for name in ("alpha/store-one", "beta/store-two"))
    with without_emulation(), ThreadPoolExecutor(2) as pool:
        by_docker = pool.submit(partial(build_on, beta, theirs, "docker", SMALL, small))
        full = build_on(alpha, ours, "buildah", WHAT)
        by_buildah = build_on(alpha, ours, "buildah", SMALL, small)
        return Builds(full, by_buildah, by_docker.result())


@pytest.fixture(scope="session")
def first(builds: Builds) -> Build:
    """nemotron-omni, built by buildah."""
    return builds.full
