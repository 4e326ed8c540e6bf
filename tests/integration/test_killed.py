"""kill -9 at random moments of commands that move layers: the next run works, and `fsck` finds nothing."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from threading import Timer

import pytest

from builder.digest import Digest
from builder.errors import NetworkError
from builder.model.reference import Reference
from builder.plan.resolve import resolve
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from builder.retry import RetryPolicy
from tests.support.cli import Cli
from tests.support.layercache import Fleet
from tests.support.nightly import NIGHTLY
from tests.support.registry import is_installed

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(not is_installed(), reason="docker-registry is not installed"),
]
ROUNDS = 70 if NIGHTLY else 1


@pytest.fixture
def fleet(online: Cli, host: str) -> Fleet:
    project = online.small.write(online.folder / "project")
    return Fleet(online, f"{host}/killed/layers", resolve(project, project.recipe("tiny")))


def killed(cli: Cli, store: Path, words: Sequence[str], seconds: float) -> int:
    """Start a command and kill it; returns its exit status."""
    cli.environ["BUILDER_STORE"] = str(store)
    process = cli.start(*words)
    time.sleep(seconds)
    process.kill()
    process.communicate()
    return process.returncode


def took(cli: Cli, *words: str) -> float:
    """The seconds that a command takes as a process of its own."""
    start = time.monotonic()
    assert cli.process(*words).code == 0
    return time.monotonic() - start


@pytest.mark.parametrize("command", ["take", "publish", "push"])
def test_a_killed_command_leaves_nothing_wrong(fleet: Fleet, command: str) -> None:
    cli, random = fleet.cli, Random(command)
    fleet.publish("alice")
    start = time.monotonic()
    assert cli.process("--version").code == 0
    quick = time.monotonic() - start
    build = ("build", "--recipe", "tiny")
    policy = fleet.trusting("alice")
    words = {
        "take": (*build, "--cache", fleet.repository, *policy),
        "publish": (*build, "--cache", f"{fleet.repository}2", "--publish", "--key", str(fleet.key("bob"))),
        "push": ("push", fleet.repository.replace("layers", "image:1"), "--recipe", "tiny"),
    }[command]
    digest = fleet.build("alice").out
    for number in range(ROUNDS):
        store = cli.folder / f"round{number}"
        if command == "push":
            shutil.copytree(fleet.store("alice").root, store)
        killed(cli, store, words, quick * (0.5 + 2.5 * random.random()))
        done = cli(*words)
        assert done.code == 0, done.err
        assert digest.strip() in done.out
        assert cli("fsck").code == 0
        shutil.rmtree(store)


def test_a_killed_gc_leaves_a_store(online: Cli) -> None:
    cli, random = online, Random("gc")
    first = cli("build", "--recipe", "tiny").out
    cli.small.files["recipes/tiny.yaml"]["layers"].remove("placed")
    second = cli("build", "--recipe", "tiny").out
    full, work = cli.folder / "store", cli.folder / "work"
    shutil.copytree(full, work)
    cli.environ["BUILDER_STORE"] = str(work)
    words = ("gc", "--max-used-space", "0B")
    longest, quick = took(cli, *words), took(cli, "--version")
    ends: Counter[int] = Counter()
    for _ in range(ROUNDS):
        shutil.rmtree(work)
        shutil.copytree(full, work)
        ends[killed(cli, work, words, random.uniform(quick / 2, longest))] += 1
        assert cli("fsck").code == 0
        assert cli(*words).code == 0
        assert cli("build", "--recipe", "tiny").out == second != first
        assert cli("fsck").code == 0
    print(dict(ends))


def test_a_killed_server_leaves_a_store(online: Cli) -> None:
    cli, random = online, Random("serve")
    digest = cli("build", "--recipe", "tiny").out.strip()
    cli.environ["BUILDER_STORE"] = str(cli.folder / "store")
    for _ in range(ROUNDS):
        process = cli.start("serve", "--listen", "127.0.0.1:0")
        assert process.stdout is not None
        place = Reference.parse(f"{process.stdout.readline().strip()}/tiny:tiny")
        stop = Timer(random.uniform(0, 0.2), process.kill)
        stop.start()
        client = Registry(
            config=RegistriesConfig(), credentials=Credentials(), retry_policy=RetryPolicy(attempts=1, pause=0.01)
        )
        with contextlib.suppress(NetworkError):
            while True:
                manifest = client.manifest(place)
                assert manifest.digest == digest
                for part in manifest.layers:
                    assert Digest.of(b"".join(client.blob(place, part.digest, part.size))) == part.digest
        process.communicate()
        assert process.returncode == -9
        assert cli("fsck").code == 0
        assert cli("build", "--recipe", "tiny").out.strip() == digest
