"""`builder deploy` with a docker daemon behind an ssh that stays on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from builder.engine.sshsocket import ssh_words
from builder.errors import UsageError
from builder.share.tunnel import checked_host
from tests.support.cli import Cli
from tests.support.docker_daemon import docker_daemon
from tests.support.errors import fails
from tests.support.nightly import NIGHTLY
from tests.support.project import ROOT
from tests.support.registry import is_installed
from tests.support.statements import new_key

NAME = "builder-test-deploy:1"


@dataclass
class Machines:
    """`builder` on a machine from which ssh leads to others."""

    cli: Cli

    def ssh(self, socket: Path | str) -> None:
        """ssh, where every machine has the daemon of this socket."""
        self.cli.write()
        program = self.cli.folder / "bin" / "ssh"
        script = ROOT / "tests/support/ssh.py"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {script} {self.cli.folder}/ssh.log {socket} "$@"\n')
        program.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return (self.cli.folder / "ssh.log").read_text().splitlines()


@pytest.fixture
def machines(online: Cli) -> Machines:
    return Machines(online)


def docker(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=False)


@pytest.fixture
def spark(machines: Machines) -> Iterator[Machines]:
    """Machines with this machine's daemon."""
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if shutil.which("docker") is None or not host.startswith("unix://") or docker("version").returncode:
        pytest.skip("no docker daemon answers")
    machines.ssh(host.removeprefix("unix://"))
    yield machines
    forget()


@pytest.mark.engine
def test_a_machine_pulls_what_it_lacks(spark: Machines) -> None:
    cli = spark.cli
    digest = cli("build", "--recipe", "tiny").out.strip()
    words = ("deploy", "--recipe", "tiny", "--tag", NAME, "--host", "me@spark1:2222")
    assert "missing" in cli(*words, "--status").out
    done = cli(*words)
    assert done.code == 0 and f"{NAME}  {digest[:19]}  pulled 4 of 4 layers" in done.out, done.err
    assert any("-l me -p 2222 -- spark1 docker system dial-stdio" in call for call in spark.calls)
    assert any("-R 127.0.0.1:508" in call for call in spark.calls)
    (found,) = json.loads(docker("image", "inspect", NAME).stdout)
    assert any(name.endswith(f"@{digest}") for name in found["RepoDigests"])
    assert "had the image" in cli(*words).out and "current" in cli(*words, "--status").out
    cli.small.files["dockerfiles/layers/placed/layer.yaml"]["files"][0]["content"] = "changed\n"
    assert cli("build", "--recipe", "tiny").code == 0
    assert "other" in cli(*words, "--status").out
    changed = json.loads(cli(*words, "--json").out)
    assert "pulled 1 of 4 layers" in changed["hosts"][0]["outcome"]
    # Where one machine fails, the others go on.
    both = cli("deploy", "--recipe", "tiny", "--tag", NAME, "--host", "spark1,unreachable")
    assert both.code == 5 and "[deploy-failed]" in both.err and "had the image" in both.out, both.err


@pytest.mark.engine
def test_layers_go_to_one_machine_once(spark: Machines) -> None:
    """Both machines are the same daemon, so the second has what the first pulled or pulls at the same time."""
    cli = spark.cli
    assert cli("build", "--recipe", "tiny").code == 0
    words = ("deploy", "--recipe", "tiny", "--tag", NAME, "--via", "spark1")
    done = cli(*words, "--host", "spark2")
    assert done.code == 0 and "pulled 4 of 4 layers" in done.out and " from spark1 in " in done.out, done.err
    assert " went from this machine to spark1" in done.err
    assert any("-- spark1 exec ssh " in call and "-- spark2 " in call for call in spark.calls)
    assert not any(call.startswith("-o BatchMode=yes") and call.endswith("-- spark2") for call in spark.calls)
    assert not list((cli.folder / "home/.cache/builder-relay").iterdir())
    both = cli(*words, "--host", "spark1,spark2")
    assert both.code == 0 and both.out.count("had the image") == 2
    gone = cli(*words, "--host", "unreachable")
    assert gone.code == 5 and "No route to host" in gone.err, gone.err


def test_a_machine_that_cannot_be_reached(machines: Machines, tmp_path: Path) -> None:
    cli = machines.cli
    assert cli("build", "--recipe", "tiny").code == 0
    machines.ssh(tmp_path / "none.sock")
    done = cli("deploy", "--recipe", "tiny", "--host", "unreachable")
    assert done.code == 5 and "No route to host" in done.err, done.err
    with docker_daemon(tmp_path / "docker.sock") as daemon:
        machines.ssh(daemon.socket)
        daemon.pull_problem = "no space left on device"
        full = cli("deploy", "--recipe", "tiny", "--host", "spark1")
        assert full.code == 5 and "no space left on device" in full.err, full.err


def test_options_that_do_not_fit(cli: Cli) -> None:
    cli("deploy", "--recipe", "tiny").failed(2, "deploy-incomplete")
    cli("deploy", "--host", "spark1").failed(2, "deploy-incomplete")
    cli("deploy", "x.example/y:1", "--recipe", "tiny", "--host", "spark1").failed(2, "deploy-incomplete")
    cli("deploy", "--recipe", "tiny", "--host", "spark1", "--policy", "p").failed(2, "policy-without-image")
    for host in ("-oProxyCommand=x", "-x@a", "a:99999", "[::x]", "[:::::::::]", "a b", "a;b", "", "me@", "a:x", "$(x)"):
        with fails(UsageError, "deploy-host-invalid"):
            checked_host(host)
    assert ssh_words("ssh://me@spark-1:2222") == ["-l", "me", "-p", "2222", "--", "spark-1"]
    assert ssh_words(f"ssh://{checked_host('[fe80::1]:22')}") == ["-p", "22", "--", "fe80::1"]


@pytest.mark.engine
@pytest.mark.skipif(not is_installed(), reason="docker-registry is not installed")
def test_an_image_in_a_registry_is_checked_and_streamed(spark: Machines, host: str) -> None:
    cli = spark.cli
    private, public = new_key(cli.folder, "own")
    new_key(cli.folder, "other")
    reference = f"{host}/deploy/tiny:1"
    digest = cli("build", "--recipe", "tiny").out.strip()
    assert cli("push", reference, "--recipe", "tiny", "--key", str(private)).code == 0
    policy = cli.folder / "policy.yaml"
    words = ("deploy", reference, "--host", "spark1", "--tag", NAME, "--policy", str(policy))
    empty = {"BUILDER_STORE": str(cli.folder / "empty")}
    policy.write_text("signed: [{key: other.pub}]\n")
    cli(*words, **empty).failed(4, "policy-unmet")
    policy.write_text(f"signed: [{{key: {public.name}}}]\n")
    done = cli(*words, **empty)
    assert done.code == 0 and f"{NAME}  {digest[:19]}  pulled 4 of 4 layers" in done.out, done.err


@pytest.mark.engine
@pytest.mark.parametrize("command", ["load", "deploy", "via"])
def test_a_killed_command_leaves_nothing_wrong(spark: Machines, command: str) -> None:
    cli, random = spark.cli, Random(command)
    cli.environ |= {name: value for name, value in os.environ.items() if name.startswith("DOCKER_")}
    digest = cli("build", "--recipe", "tiny").out.strip()
    words = {
        "load": ("load", "--recipe", "tiny", "--tag", NAME),
        "deploy": ("deploy", "--recipe", "tiny", "--tag", NAME, "--host", "spark1"),
        "via": ("deploy", "--recipe", "tiny", "--tag", NAME, "--host", "spark1,spark2", "--via", "spark1"),
    }[command]
    start = time.monotonic()
    assert cli.process(*words).code == 0
    longest, ends = time.monotonic() - start, Counter[int]()
    for _ in range(30 if NIGHTLY else 1):
        forget()
        process = cli.start(*words)
        time.sleep(random.uniform(longest / 8, longest))
        process.kill()
        process.communicate()
        ends[process.returncode] += 1
        done = cli.process(*words)
        assert done.code == 0, done.err
        (found,) = json.loads(docker("image", "inspect", NAME).stdout)
        assert any(name.endswith(f"@{digest}") for name in found["RepoDigests"]), found
        assert cli("fsck").code == 0
    print(command, dict(ends), f"{longest:.1f} s")


def forget() -> None:
    """Remove all names of the images of these tests."""
    listed = docker("images", "--digests", "--format", "{{.Repository}}:{{.Tag}} {{.Repository}}@{{.Digest}}").stdout
    for line in listed.splitlines():
        tagged, pinned = line.split()
        if "builder-test-deploy" in line or "/tiny@" in line:
            docker("image", "rm", "--force", pinned if tagged.endswith("<none>") else tagged)
