"""kill -9 at random moments of commands that move layers: the next run works, and `fsck` finds nothing."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from builder.plan.resolve import resolve
from tests.support.cli import Cli
from tests.support.layercache import Fleet
from tests.support.nightly import NIGHTLY
from tests.support.registry import is_installed

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(not is_installed(), reason="docker-registry is not installed"),
]
ROUNDS = 70 if NIGHTLY else 2


@pytest.fixture
def fleet(online: Cli, host: str) -> Fleet:
    project = online.small.write(online.folder / "project")
    return Fleet(online, f"{host}/killed/layers", resolve(project, project.recipe("tiny")))


def killed(cli: Cli, store: Path, words: Sequence[str], seconds: float) -> None:
    """Start a command and kill it."""
    cli.environ["BUILDER_STORE"] = str(store)
    process = cli.start(*words)
    time.sleep(seconds)
    process.kill()
    process.communicate()


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
