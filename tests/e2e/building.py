"""Builds of the end-to-end tests: what is built, on which machine, into which store."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from builder.digest import Digest
from tests.e2e import small_project
from tests.e2e.machines import Machine

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


@dataclass(frozen=True)
class Builds:
    """What two machines built. full: nemotron-omni by buildah. by_docker: the small image."""

    full: Build
    by_docker: Build


@dataclass(frozen=True)
class Pushed:
    """An image in the registry: its reference by digest, and what to say to `builder` about it."""

    reference: str
    build: Build
    what: list[str]
    env: dict[str, str]


def builder(*arguments: str, store: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run `builder` on this machine."""
    every = {**os.environ, "BUILDER_STORE": str(store), **(env or {})}
    return subprocess.run([*BUILDER, *arguments], env=every, capture_output=True, text=True, check=False, timeout=3000)


def build_on(machine: Machine, store: Path, engine: str, what: list[str], env: dict[str, str] | None = None) -> Build:
    """Build an image there, offline."""
    measured = ["/usr/bin/time", "-f", "peak %M kB", *BUILDER] if Path("/usr/bin/time").exists() else BUILDER
    done = machine.run([*measured, "build", *what, "--engine", engine, "--offline"], store, env)
    assert done.returncode == 0, done.stderr[-4000:]
    return Build(Digest(done.stdout.strip()), store, done.stderr, machine)


def push(target: str, build: Build, what: list[str], env: dict[str, str] | None = None) -> Pushed:
    """`builder push` to a tag."""
    done = builder("push", target, *what, store=build.store, env=env)
    assert done.returncode == 0, done.stderr
    return Pushed(done.stdout.strip(), build, what, env or {})


def fresh_store(inputs: Path, target: Path) -> Path:
    """A store with nothing but inputs, as a mirror or an earlier download would have left them."""
    copy_links(inputs, target, "blobs")
    return target


def copy_links(store: Path, target: Path, *names: str) -> None:
    """Folders of a store as hard links in another store; what that has already stays."""
    for name in names:
        shutil.copytree(store / name, target / name, copy_function=_link, dirs_exist_ok=True)


def _link(source: str, target: str) -> None:
    if not Path(target).exists():
        Path(target).hardlink_to(source)
