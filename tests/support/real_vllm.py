"""A real vLLM on this machine's processor, serving the tiny model: the words of a container, run as a process."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import requests

from tests.support import tiny_model
from tests.support.vllm_wheels import cpu_vllm

VERSIONS = ("0.28.0", "0.32.0")
"""Versions of vLLM whose builds for CPUs work with the CPU build of torch, and that hermetic bases have."""
REPOSITORY = "Qwen/Qwen3-1.7B"
REVISION = "0" * 40
KEY = "secret"
# Compiling for this processor takes a minute; a gibibyte holds the keys and values of the tiny model many times over.
FAST = {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", "VLLM_NO_USAGE_STATS": "1", "TQDM_DISABLE": "1"}


def hub(folder: Path, python: Path) -> None:
    """Write the tiny model into a cache of the hub, under the name of the gpu tier's small model."""
    top = folder / "hub" / f"models--{REPOSITORY.replace('/', '--')}"
    made = top / "snapshots" / REVISION
    subprocess.run([python, tiny_model.__file__, made], check=True, timeout=300)
    (top / "refs").mkdir()
    (top / "refs" / "main").write_text(REVISION)


def command(words: Sequence[str], port: int) -> list[str]:
    """The words after `vllm serve`, for this machine: on the loopback interface, without compilation."""
    changed = list(words)
    for name, value in (("--host", "127.0.0.1"), ("--port", str(port))):
        changed[changed.index(name) + 1] = value
    return [*changed, "--enforce-eager"]


@dataclass
class RealServer:
    """A process. log: what it has printed."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def log(self) -> str:
        return "".join(self.lines)


@contextlib.contextmanager
def serving(
    version: str,
    words: Sequence[str],
    port: int,
    folder: Path,
    env: Mapping[str, str] | None = None,
    heard: Callable[[str], None] = lambda line: None,
) -> Iterator[RealServer]:
    """`vllm serve` of a version, with an empty home below `folder`. heard: gets each line that it prints."""
    python = cpu_vllm(version)
    home, models = folder / "home", folder / "models"
    if not models.exists():
        hub(models, python)
    home.mkdir(exist_ok=True)
    own = {"PATH": f"{python.parent}:{os.environ['PATH']}", "HOME": str(home), "HF_HOME": str(models), **FAST}
    # Paths are those of a container.
    given = {name: value for name, value in (env or {}).items() if "/" not in value}
    argv = [str(python), "-m", "vllm.entrypoints.cli.main", "serve", *command(words, port)]
    process = subprocess.Popen(
        argv,
        env={**given, **own, "HF_HUB_OFFLINE": "1"},
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    server = RealServer(process)

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            server.lines.append(line)
            heard(line)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield server
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(10)


def wait_until_healthy(server: RealServer, url: str, seconds: float = 600) -> None:
    """Wait for /health. Fails with the end of the log."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and server.process.poll() is None:
        with contextlib.suppress(requests.RequestException):
            if requests.get(f"{url}/health", timeout=10).status_code == 200:
                return
        time.sleep(0.2)
    raise AssertionError(server.log()[-3000:])


def plain_log(text: str) -> list[str]:
    """The lines of a log without routes, requests, and what differs each time: times, processes, paths."""
    found = []
    for line in text.splitlines():
        line = re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip()
        line = re.sub(r"/\S*?/(?:site-packages|lib/python3\.\d+)/", "", line)
        line = re.sub(r"pid=\d+", "pid=1", line)
        line = re.sub(r"\d\d-\d\d \d\d:\d\d:\d\d", "11-21 08:00:00", line)
        line = re.sub(r"vllm_dist_[0-9a-f]+", "vllm_dist_0", line)
        line = re.sub(r"\b\d+(\.\d+){3}\b", "127.0.0.1", line)
        if line and not re.search(r"[▄█▀]|Route: |INFO:  |\d%\|", line):
            found.append(line)
    return list(dict.fromkeys(found))
