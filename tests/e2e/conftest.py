"""Two images, built on two different machines; all tests here use them.

nemotron-omni is built by buildah and compared with its golden digest. The small image, which has every kind of layer,
is built by docker, and a stranger verifies it with buildah. So NCCL is compiled once per run; the nightly job has
docker compile it too.

The cache of the tests keeps inputs (4 GB) between runs and, for the same code of `builder`, the layers of nemotron-omni
and its unpacked files with their bytecode (12 GB): a second run on the same code does not make them again. With
BUILDER_NIGHTLY set, tests cover more, see `nightly`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

import pytest

from builder.smoke.cpu.runc import RuncRunner
from builder.smoke.image.opened import open_image
from builder.smoke.image.unpack import remove_tree, unpacked_root
from builder.store.store import Store
from tests.e2e import small_project
from tests.e2e.building import SMALL, WHAT, Build, Builds, Pushed, build_on, builder, copy_links, fresh_store, push
from tests.e2e.bytecode import compile_bytecode
from tests.e2e.emulated import Emulated, run_emulated
from tests.e2e.machines import Machine, without_emulation
from tests.support import prefetch
from tests.support.cache import INPUTS, TESTS_CACHE
from tests.support.nightly import NIGHTLY
from tests.support.project import ROOT


@pytest.fixture(scope="session", autouse=True)
def _needs() -> None:
    if os.geteuid() != 0:
        pytest.skip("namespaces of the end-to-end tests need root")
    tools = ("buildah", "docker", "runc", "unshare", "datefudge", "skopeo")
    missing = [name for name in tools if shutil.which(name) is None]
    if missing:
        pytest.skip(f"scripts/test installs {', '.join(missing)}")


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A large folder on the file system of the cache, so that inputs can be hard-linked."""
    for old in TESTS_CACHE.glob("run-*"):
        # Files of a killed run: tens of gigabytes.
        if not Path("/proc", old.name.removeprefix("run-")).exists():
            remove_tree(old)
    work = TESTS_CACHE / f"run-{os.getpid()}"
    work.mkdir(parents=True)
    work.chmod(0o755)
    yield work
    remove_tree(work)


@pytest.fixture(scope="session")
def kept(_needs: None) -> Path:
    """A folder for results that a run on the same code can use again: `store` and `unpacked`."""
    code = hashlib.sha256()
    for path in sorted((ROOT / "builder").rglob("*.py")):
        code.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    current = TESTS_CACHE / f"kept-{code.hexdigest()[:16]}"
    for old in TESTS_CACHE.glob("kept-*"):
        if old != current:
            remove_tree(old)
    current.mkdir(parents=True, exist_ok=True)
    return current


@pytest.fixture(scope="session")
def inputs(_needs: None) -> Path:
    """A store with every input, kept from one run to the next."""
    prefetch.main()
    return INPUTS


@pytest.fixture(scope="session")
def context(folder: Path, inputs: Path) -> Path:
    """The output of `render --context` for nemotron-omni, with its unpacked toolchains: at night."""
    target = folder / "context"
    done = builder("render", *WHAT, "--context", str(target), store=inputs)
    assert done.returncode == 0, done.stderr
    return target


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
def background() -> Iterator[ThreadPoolExecutor]:
    """What runs beside other work."""
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture(scope="session")
def builds(
    inputs: Path,
    folder: Path,
    kept: Path,
    alpha: Machine,
    beta: Machine,
    small: dict[str, str],
    background: ThreadPoolExecutor,
) -> Builds:
    """Two machines build at the same time, with no way to run arm64 code."""
    ours, theirs = (fresh_store(inputs, folder / name) for name in ("alpha/store-one", "beta/store-two"))
    if (kept / "store").exists():
        copy_links(kept / "store", ours, "blobs", "layers")
    with without_emulation():
        by_docker = background.submit(partial(build_on, beta, theirs, "docker", SMALL, small))
        full = build_on(alpha, ours, "buildah", WHAT)
        if not (kept / "store").exists():
            copy_links(ours, kept / "new", "blobs", "layers")
            (kept / "new").rename(kept / "store")
        return Builds(full, by_docker.result())


def unpack(first: Build, kept: Path) -> None:
    """Unpack nemotron-omni (8 GB) where `builder test` looks for it, with its bytecode. Runs no arm64 code."""
    place = Store(first.store).unpacked
    if (kept / "unpacked").exists():
        (kept / "unpacked").rename(place)
    root = unpacked_root(open_image(first.store, first.digest), place)
    compile_bytecode(root, Path(f"{root}-bytecode"))


@pytest.fixture(scope="session")
def first(builds: Builds) -> Build:
    """nemotron-omni, built by buildah."""
    return builds.full


@pytest.fixture(scope="session")
def unpacked(first: Build, kept: Path, background: ThreadPoolExecutor) -> Iterator[Future[None]]:
    """The end of unpacking nemotron-omni, whose programs then run."""
    running = background.submit(unpack, first, kept)
    yield running
    wait([running])
    Store(first.store).unpacked.rename(kept / "unpacked")


@pytest.fixture(scope="session")
def sandbox(first: Build, unpacked: Future[None]) -> Iterator[RuncRunner]:
    """nemotron-omni, unpacked."""
    unpacked.result()
    runner = RuncRunner(open_image(first.store, first.digest), Store(first.store).unpacked)
    yield runner
    runner.close()


@pytest.fixture(scope="session", autouse=True)
def _early(request: pytest.FixtureRequest) -> None:
    """Start what takes minutes before the first test, when a test needs it."""
    if any("emulated" in item.fixturenames for item in request.session.items):  # type: ignore[attr-defined]
        request.getfixturevalue("emulated")


@pytest.fixture(scope="session")
def emulated(
    request: pytest.FixtureRequest, first: Build, unpacked: Future[None], background: ThreadPoolExecutor
) -> Iterator[Future[Emulated]]:
    """What takes minutes under qemu, in the background of all other tests."""
    sandbox = request.getfixturevalue("sandbox") if NIGHTLY else None
    running = background.submit(run_emulated, first, unpacked, sandbox)
    yield running
    wait([running])


@pytest.fixture(scope="session")
def registry(folder: Path) -> Iterator[str]:
    """Debian's docker-registry on loopback; yields HOST:PORT."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / "registry.yml"
    config.write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {folder / 'registry'}}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    server = subprocess.Popen(
        ["docker-registry", "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    for _ in range(100):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    yield f"127.0.0.1:{port}"
    server.terminate()
    server.wait()
    shutil.rmtree(folder / "registry", ignore_errors=True)


@pytest.fixture(scope="session")
def shared(builds: Builds, small: dict[str, str], registry: str) -> Pushed:
    """The small image in the registry."""
    return push(f"{registry}/team/small:test", builds.by_docker, SMALL, small)
