"""Two machines: network namespaces with a docker daemon and an sshd each, an uplink to this machine, a direct link.

Needs root, iproute2, docker's programs on PATH and an sshd (`SSHD` names it; Debian's openssh-server, unpacked).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SSHD = Path(os.environ.get("BUILDER_SSHD") or "/usr/sbin/sshd")
_UPLINKS = ("198.18.77", "198.18.78")
_DIRECT = "198.18.79"
_ALL = ("spark1", "spark2")
SHAPE = ("tbf", "rate", "1gbit", "burst", "256kb", "latency", "50ms")


def problem() -> str:
    """Why there can be no machines here; empty when there can."""
    if os.geteuid():
        return "needs root, for network namespaces"
    missing = [name for name in ("ip", "tc", "dockerd", "docker", "ssh", "ssh-keygen") if shutil.which(name) is None]
    missing += [] if SSHD.is_file() else ["sshd"]
    return f"not installed: {', '.join(missing)}" if missing else ""


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


@dataclass(frozen=True)
class Sparks:
    """The machines `spark1` and `spark2`, for ssh from here; spark1 reaches the other as `direct2`, directly."""

    folder: Path

    @property
    def bin(self) -> Path:
        """A folder with the `ssh` that reaches them."""
        return self.folder / "bin"

    def uplink(self) -> int:
        """Bytes that this machine has sent to both so far."""
        return sum(int(Path(f"/sys/class/net/b-up{one}/statistics/tx_bytes").read_text()) for one in (1, 2))

    def direct(self) -> int:
        """Bytes that spark1 has sent on the direct link."""
        (found,) = json.loads(_run("ip", "-n", "b-spark1", "-json", "-stats", "link", "show", "b-link"))
        return int(found["stats64"]["tx"]["bytes"])

    def plug(self, number: int, *, up: bool) -> None:
        """Plug the cable of a machine's uplink, or pull it."""
        _run("ip", "link", "set", f"b-up{number}", "up" if up else "down")

    def plug_direct(self, *, up: bool) -> None:
        """The same with the direct link."""
        _run("ip", "-n", "b-spark1", "link", "set", "b-link", "up" if up else "down")

    def docker(self, number: int, *words: str) -> str:
        """Run docker on a machine."""
        return _run("docker", "--host", f"unix://{self.folder}/spark{number}/docker.sock", *words)


@contextlib.contextmanager
def two_sparks(folder: Path, rate: tuple[str, ...] = SHAPE) -> Iterator[Sparks]:
    """spark1 keeps images with overlay2, spark2 in containerd's store. rate: how tc shapes the uplinks."""
    with contextlib.ExitStack() as stack:
        _networks(stack, rate)
        _keys(folder)
        for number, name in enumerate(_ALL, 1):
            (folder / name).mkdir()
            stack.enter_context(_sshd(folder, name, number))
            stack.enter_context(_dockerd(folder / name, f"b-{name}", containerd=number == 2))
        yield Sparks(folder)


def _networks(stack: contextlib.ExitStack, rate: tuple[str, ...]) -> None:
    for name in _ALL:
        _run("ip", "netns", "add", f"b-{name}")
        stack.callback(_remove, f"b-{name}")
        _run("ip", "-n", f"b-{name}", "link", "set", "lo", "up")
    for number, (name, net) in enumerate(zip(_ALL, _UPLINKS, strict=True), 1):
        stack.callback(_run, "ip", "link", "del", f"b-up{number}")
        _run("ip", "link", "add", f"b-up{number}", "type", "veth", "peer", "name", "b-up", "netns", f"b-{name}")
        _run("ip", "addr", "add", f"{net}.1/30", "dev", f"b-up{number}")
        _run("ip", "-n", f"b-{name}", "addr", "add", f"{net}.2/30", "dev", "b-up")
        _run("tc", "qdisc", "add", "dev", f"b-up{number}", "root", *rate)
        _run("tc", "-n", f"b-{name}", "qdisc", "add", "dev", "b-up", "root", *rate)
        _run("ip", "link", "set", f"b-up{number}", "up")
        _run("ip", "-n", f"b-{name}", "link", "set", "b-up", "up")
    _run("ip", "-n", "b-spark1", "link", "add", "b-link", "type", "veth", "peer", "name", "b-link", "netns", "b-spark2")
    for number, name in enumerate(_ALL, 1):
        _run("ip", "-n", f"b-{name}", "addr", "add", f"{_DIRECT}.{number}/30", "dev", "b-link")
        _run("ip", "-n", f"b-{name}", "link", "set", "b-link", "up")


def _remove(space: str) -> None:
    # Sessions of sshd, and what they started, outlive it.
    for process in _run("ip", "netns", "pids", space).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process), signal.SIGKILL)
    _run("ip", "netns", "del", space)


def _keys(folder: Path) -> None:
    for name in ("user", "host"):
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
    addresses = {"spark1": f"{_UPLINKS[0]}.2", "spark2": f"{_UPLINKS[1]}.2", "direct2": f"{_DIRECT}.2"}
    hosts = "".join(f"Host {name}\n HostName {address}\n" for name, address in addresses.items())
    every = f"User root\nIdentityFile {folder}/user\nUserKnownHostsFile /dev/null\n"
    every += "StrictHostKeyChecking no\nLogLevel ERROR\n"
    (folder / "ssh_config").write_text(f"{hosts}Host *\n{every}")
    (folder / "bin").mkdir()
    ssh = folder / "bin/ssh"
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
    ssh.chmod(0o755)


@contextlib.contextmanager
def _sshd(folder: Path, name: str, number: int) -> Iterator[None]:
    own = folder / name
    path = f"{folder}/bin:{Path(str(shutil.which('docker'))).parent}:/usr/bin:/bin"
    (own / "sshd_config").write_text(
        f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nStrictModes no\nPermitRootLogin yes\n"
        f"UsePAM no\nPidFile none\nAcceptEnv none\n"
        f"SetEnv DOCKER_HOST=unix://{own}/docker.sock PATH={path} HOME={own} XDG_CACHE_HOME={own}/cache\n"
    )
    # sshd changes to a user of this name before a login, and into this folder.
    passwd = Path("/etc/passwd").read_text()
    passwd = "".join(line for line in passwd.splitlines(keepends=True) if not line.startswith("sshd:"))
    (own / "passwd").write_text(f"{passwd}sshd:x:65533:65534::/run/sshd:/bin/false\n")
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    script = f"mount --bind {own}/passwd /etc/passwd && exec {SSHD} -D -e -f {own}/sshd_config"
    words = ["nsenter", f"--net=/run/netns/b-{name}", "unshare", "--mount", "sh", "-c", script]
    libraries = [str(path) for path in (SSHD.parents[1] / "lib").glob("*-linux-gnu")]
    environ = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)} if SSHD.parents[2] != Path("/") else None
    with _started(words, own / "sshd.log", environ):
        address = f"{_UPLINKS[number - 1]}.2"
        _await(lambda: _answers(f"{folder}/bin/ssh", name), own / "sshd.log", f"sshd at {address}")
        yield


@contextlib.contextmanager
def _dockerd(own: Path, space: str, *, containerd: bool) -> Iterator[None]:
    (own / "daemon.json").write_text(f'{{"features": {{"containerd-snapshotter": {str(containerd).lower()}}}}}')
    words = ["nsenter", f"--net=/run/netns/{space}", "dockerd", "--config-file", f"{own}/daemon.json", "--bridge=none"]
    words += ["--iptables=false", "--ip6tables=false", "--data-root", f"{own}/data", "--exec-root", f"{own}/exec"]
    words += ["--pidfile", f"{own}/pid", "--host", f"unix://{own}/docker.sock"]
    with _started(words, own / "dockerd.log"):
        _await(lambda: _answers("docker", "--host", f"unix://{own}/docker.sock", "version"), own / "dockerd.log", space)
        yield
    subprocess.run(["umount", f"{own}/data"], capture_output=True, check=False)
    shutil.rmtree(own / "data", ignore_errors=True)


@contextlib.contextmanager
def _started(words: list[str], log: Path, environ: dict[str, str] | None = None) -> Iterator[None]:
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, env=environ, start_new_session=True)
    try:
        yield
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()
        process.wait()


def _answers(*words: str) -> bool:
    words = (*words, "true") if words[-1] in _ALL else words
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _await(check: object, log: Path, what: str) -> None:
    assert callable(check)
    end = time.monotonic() + 60
    while not check():
        assert time.monotonic() < end, f"{what}: {log.read_text()[-2000:]}"
        time.sleep(0.2)
