"""Ctrl-C and SIGTERM end `builder test` within seconds, whatever it waits for, and no process is left."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from builder.smoke.image.opened import open_image
from tests.support.http_registry import Answer, Request, Server, serving
from tests.support.images import layout
from tests.support.interrupt import SIGNALS, children, interrupt
from tests.support.nightly import nightly_but
from tests.unit.cli.conftest import Cli


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


@pytest.mark.parametrize("number", nightly_but(SIGNALS, signal.SIGTERM))
@pytest.mark.parametrize("tier", ["static", "cpu"])
@pytest.mark.parametrize("silent", ["at once", "after a part"])
def test_a_registry_that_falls_silent(cli: Cli, server: Server, number: signal.Signals, tier: str, silent: str) -> None:
    chance = random.Random(1)
    image = layout(cli.folder / "image", [{f"opt/{each}": chance.randbytes(3 << 20)} for each in range(3)])
    opened = open_image(image)
    server.serve_manifest((image / opened.digest.path).read_bytes(), "1")
    waiting, ended = threading.Semaphore(0), threading.Event()

    def hang(request: Request) -> Answer:
        waiting.release()
        ended.wait(60)
        return Answer(200)

    class Slow(bytes):
        """A body of which the registry sends the first half."""

        def __getitem__(self, key: object) -> bytes:  # type: ignore[override]
            waiting.release()
            return bytes(self)[: len(self) // 2]

    for path in (image / "blobs/sha256").iterdir():
        data = path.read_bytes()
        route = Answer(200, data) if len(data) < 1 << 20 else hang if silent == "at once" else Answer(200, Slow(data))
        server.on("GET", f"/v2/team/app/blobs/sha256:{path.name}", route)
    process = cli.start("test", f"{server.host}/team/app:1", "--tier", tier)
    assert waiting.acquire(timeout=30)
    time.sleep(1)
    assert process.poll() is None
    interrupt(process, number)
    ended.set()


@pytest.mark.parametrize("number", nightly_but(SIGNALS, signal.SIGINT))
def test_an_image_of_many_layers_that_is_read(cli: Cli, number: signal.Signals) -> None:
    """Large enough for processes of their own, which forked workers are."""
    chance = random.Random(1)
    text = b"".join(b"-----BEGIN PRIVATE KEY-----\n" * 37_000 for _ in range(60))
    layers = [{f"opt/{each}": chance.randbytes(45 << 20), f"srv/{each}": text + bytes([each])} for each in range(5)]
    layout(cli.folder / "image", layers)
    process = cli.start("test", "oci:image")
    while os.cpu_count() != 1 and len(children(process)) < 2:
        assert process.poll() is None
        time.sleep(0.1)
    time.sleep(2)
    interrupt(process, number)
    assert list((cli.folder / "store").glob("tmp/*/*")) == []
