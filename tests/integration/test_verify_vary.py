"""`builder verify --vary`: what a layer takes from the machine is found, and the variation that shows it is named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from builder.engine.buildah import BuildahEngine
from builder.verify.vary.clock import library
from tests.support.cli import Cli
from tests.support.interrupt import children, interrupt
from tests.support.mirror import Mirror
from tests.support.nightly import nightly
from tests.support.project import root_packages
from tests.support.shell import shell_root

PLANTED = {
    "year": "date +%Y",
    "second": "date +%s",
    "random": "head -c 8 /dev/urandom | od -x",
    "cpus": "nproc",
    "order": "mkdir /d && cd /d && touch 1 2 3 4 5 6 7 8 9 a b c d e f g h i j k l m n o p && ls -U",
    "folder": "sed -n 's,.*upperdir=\\([^,]*\\)/store/tmp/.*,\\1,p' /proc/mounts",
    "host": "hostname; uname -n; cat /etc/hosts",
    "umask": "umask",
    "kernel": "uname -r",
    "healthy": "cat /etc/passwd",
    "endless": 'if test "$(date +%Y)" = 2001; then while :; do :; done; fi',
}
"""What a layer writes into its only file."""


def plant(cli: Cli, mirror: Mirror, *names: str) -> None:
    """Make the recipe one of these layers, compiled by a real engine in a small root."""
    cli.environ["PATH"] = os.environ["PATH"]
    for architecture in ("amd64", "arm64"):
        cli.small.add_debs(f"toolchain-{architecture}", root_packages(shell=shell_root()), architecture)
    cli.small.serve(mirror)
    for name in names:
        cli.small.files[f"dockerfiles/layers/{name}/layer.yaml"] = {
            "name": name,
            "title": "Planted",
            "producer": "dockerfile",
            "inputs": {"toolchain": True},
        }
        cli.small.files[f"dockerfiles/layers/{name}/Dockerfile.j2"] = (
            f"FROM toolchain AS {{{{ id }}}}-build\nRUN mkdir -p /out/opt && ({PLANTED[name]}) > /out/opt/{name}\n\n"
            "FROM scratch AS {{ id }}\nCOPY --from={{ id }}-build /out /\n"
        )
    cli.small.files["recipes/tiny.yaml"]["layers"] = [*names, "placed", "entrypoint"]


def vary(cli: Cli, groups: str, *words: str) -> tuple[int, dict[str, dict[str, Any]], str]:
    """Build the image and rebuild it under variations; the exit status, the results by name, and messages."""
    built = cli("build", "--recipe", "tiny", "--engine", "buildah")
    assert built.code == 0, built.err
    said = cli("verify", "--recipe", "tiny", "--vary", groups, "--json", *words)
    assert list((cli.folder / "store" / "tmp").iterdir()) == []
    return said.code, {item["variation"]: item for item in json.loads(said.out)["variations"]}, said.err


def changed(results: dict[str, dict[str, Any]], layer: str) -> dict[str, str]:
    """The variations that changed a layer, and the causes."""
    found = {name: result["changed"] for name, result in results.items()}
    return {name: item["cause"] for name, items in found.items() for item in items if item["layer"] == layer}


@pytest.fixture
def steps(online: Cli, tmp_path: Path) -> Cli:
    if os.geteuid() != 0 or not BuildahEngine().probe().usable:
        pytest.skip("buildah cannot be used here")
    return online


def test_unpacked_layers_are_the_same_under_every_variation(online: Cli) -> None:
    online.environ["PATH"] = os.environ["PATH"]
    groups = "umask,folder" if not os.environ.get("BUILDER_NIGHTLY") else "all"
    code, results, err = vary(online, groups)
    assert code == 0, err
    outcomes = {name: result["outcome"] for name, result in results.items()}
    assert set(outcomes.values()) <= {"identical", "not varied"}
    assert outcomes["again"] == outcomes["umask 077"] == outcomes["folder with a long path"] == "identical"
    if os.geteuid() == 0 and groups == "all":
        assert sum(outcome == "identical" for outcome in outcomes.values()) >= 22, outcomes


@pytest.mark.engine
def test_what_a_step_takes_from_the_machine_is_named(steps: Cli, mirror: Mirror) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor: their number cannot be varied")
    plant(steps, mirror, "cpus")
    code, results, err = vary(steps, "cpus", "--layer", "cpus", "--layer", "placed")
    assert code == 8 and "[verify-varies]" in err and "cpus 1 processor: layer cpus" in err, err
    assert changed(results, "cpus") == {"cpus 1 processor": ""}
    assert results["cpus 1 processor"]["changed"][0]["files"] == ["opt/cpus: content"]
    assert changed(results, "placed") == {} and results["again"]["outcome"] == "identical"


@nightly
@pytest.mark.engine
@pytest.mark.skipif(library() is None, reason="datefudge is not installed")
def test_every_planted_fault(steps: Cli, mirror: Mirror) -> None:
    names = [name for name in PLANTED if name != "endless"]
    plant(steps, mirror, *names)
    code, results, err = vary(steps, "time,umask,cpus,order,folder,hostname,kernel")
    assert code == 8, err
    assert {*changed(results, "year")} == {"time 2001-02-03 04:05:06", "time 2036-12-31 23:59:58"}
    assert changed(results, "second")["again"].startswith("time: ")
    assert changed(results, "random")["again"].startswith("a random number")
    assert changed(results, "folder")["again"].startswith("folder: ")
    assert {*changed(results, "kernel")} == {"kernel release 2.6"}
    if len(os.sched_getaffinity(0)) > 1:
        assert {*changed(results, "cpus")} == {"cpus 1 processor"}
    if results["order of a file system in memory"]["outcome"] != "not varied":
        assert {*changed(results, "order")} == {"order of a file system in memory"}
    # Where nothing can be said, nothing is compared.
    assert {"second", "random", "folder"}.isdisjoint(results["cpus 1 job"]["layers"])
    # The engine sets the mask of steps, and the name of the machine.
    assert changed(results, "umask") == changed(results, "host") == changed(results, "healthy") == {}


@pytest.mark.engine
@pytest.mark.skipif(library() is None, reason="datefudge is not installed")
def test_a_variation_that_is_stopped_leaves_no_process(steps: Cli, mirror: Mirror) -> None:
    plant(steps, mirror, "endless")
    assert steps("build", "--recipe", "tiny", "--engine", "buildah").code == 0
    process = steps.start("verify", "--recipe", "tiny", "--layer", "endless", "--vary", "time")
    end = time.monotonic() + 120
    while not any(stuck(pid) for pid in children(process)):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.5)
    interrupt(process, signal.SIGTERM)


def stuck(pid: str) -> bool:
    """Whether a process is the shell of the endless step, for seconds."""
    words = ["ps", "-ww", "-o", "etimes=", "-o", "args=", "-p", pid]
    said = subprocess.run(words, capture_output=True, text=True, check=False).stdout.split(maxsplit=1)
    return len(said) == 2 and int(said[0]) > 1 and "while :" in said[1]


def test_what_cannot_be_varied(online: Cli) -> None:
    assert online("build", "--recipe", "tiny").code == 0
    online("verify", "--recipe", "tiny", "--vary", "tide").failed(2, "variation-unknown")
    said = online("verify", "--recipe", "tiny", "--vary", "engine,network")
    # There is no unshare in the PATH, and no layer needs an engine.
    assert said.code == 0 and "could not be had on this machine" in said.err
    assert "it reaches none of the layers" in said.err and "unshare: is not installed" in said.err
