"""A signal ends commands that wait for a silent server, and nothing temporary stays behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.interrupt import interrupt, silent
from tests.support.mirror import Mirror
from tests.support.project import ask_locks, vendor_base
from tests.unit.cli.conftest import Cli

DRIP = b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 1000
COMMANDS = {
    "push": ["push", "{host}/a/b:1", "--recipe", "plain"],
    "mirror to a registry": ["mirror", "{host}/a/b", "--recipe", "plain"],
    "mirror to a folder": ["mirror", "copies", "--recipe", "plain"],
    "build": ["build", "--recipe", "plain"],
    "render": ["render", "--recipe", "tiny", "--context", "context"],
    "lock a base": ["lock", "--update", "vendor"],
    "lock sources": ["lock", "--update", "widget"],
    "lock wheels": ["lock", "--update", "tiny-wheels"],
    "lock options": ["lock", "--update", "vllm==0.33.0"],
    "check": ["lock", "--check", "--remote"],
}


@pytest.fixture
def ready(cli: Cli, mirror: Mirror) -> Callable[[str], None]:
    """Writes a project with a built image; a function that makes another host the only one of all inputs."""
    cli.small.files["recipes/plain.yaml"] = {
        **cli.small.files["recipes/tiny.yaml"],
        "name": "plain",
        "layers": ["placed", "settings"],
    }
    ask_locks(cli.small.files)
    cli.small.files["recipes/locks/requests.yaml"]["sources"] = {"widget": {"github": "a/b", "versions": ["1.0"]}}
    cli.environ |= {"PATH": os.environ["PATH"], "TMPDIR": str(cli.folder / "temporary")}
    (cli.folder / "temporary").mkdir()
    cli.small.serve(mirror)
    cli.environ |= mirror.environment

    def move(host: str) -> None:
        cli.environ |= {
            "UV_DEFAULT_INDEX": f"http://{host}/simple/",
            "BUILDER_DEB_MIRROR": f"http://{host}/debian",
            "BUILDER_GITHUB": f"http://{host}",
        }
        cli.small.files["recipes/bases/vendor.yaml"] = vendor_base(f"{host}/a/b:1", "sha256:" + "1" * 64)

    return move


@pytest.mark.parametrize("command", COMMANDS)
def test_it_ends_soon_and_leaves_nothing(cli: Cli, ready: Callable[[str], None], command: str) -> None:
    place = list(COMMANDS).index(command)
    if command == "push":
        assert cli("build", "--recipe", "plain").code == 0
    with silent(DRIP if place % 2 else b"") as (host, asked):
        ready(host)
        process = cli.start(*(word.format(host=host) for word in COMMANDS[command]))
        assert asked.acquire(timeout=30)
        time.sleep(1)
        assert process.poll() is None
        interrupt(process, (signal.SIGTERM, signal.SIGINT)[place // 2 % 2])
    assert list((cli.folder / "temporary").iterdir()) == []
    assert [path for path in (cli.folder / "store").glob("tmp/*") if path.is_file()] == []
    assert not list(Path(cli.folder).glob("copies/.partial/*"))
