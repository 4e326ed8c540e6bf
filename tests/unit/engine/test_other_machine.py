"""Answers of another machine that `deploy` reaches by ssh: bounded, and never a traceback."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from builder.digest import Digest
from builder.engine.sshsocket import SshSocket
from builder.errors import EngineError
from builder.share import tunnel, way
from builder.share.parcel import Parcel
from builder.share.tunnel import Tunnel
from builder.store.store import Store
from tests.support.errors import fails
from tests.support.hostile import limit
from tests.support.http_registry import image_manifest


def ssh(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    (folder / "bin").mkdir()
    program = folder / "bin" / "ssh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")


def via_spark(folder: Path) -> way.Via:
    """The way of an image to one machine, through its relay."""
    store = Store(folder / "store")
    parcel = Parcel("x", store.put(image_manifest()), Digest.of(b"{}"), frozenset(), "linux/arm64", None)
    return way.Via("spark", ["spark"], parcel, store)


FLOOD = f"exec {sys.executable} -IS -c 'import os\nwhile True: os.write(2, bytes(65536))'"


def test_what_the_other_machine_writes_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh(tmp_path, monkeypatch, FLOOD)
    tunnelled = SshSocket("ssh://spark")
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(tunnelled.url.removeprefix("unix://"))
            connection.settimeout(10)
            assert connection.recv(1) == b""
        assert tunnelled._log.stat().st_size < 200 << 20
        before = tunnelled._log.stat().st_size
        time.sleep(0.3)
        assert tunnelled._log.stat().st_size == before
    finally:
        tunnelled.close()
    with fails(EngineError, "deploy-tunnel-failed"), Tunnel("spark", 1):
        pass


@pytest.mark.parametrize("script", ["exec sleep 60", "exec yes"], ids=["silent", "talking"])
def test_a_machine_that_never_gets_ready(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh(tmp_path, monkeypatch, script)
    monkeypatch.setattr(tunnel, "_SECONDS", 0.5)
    begin = time.monotonic()
    with fails(EngineError, "deploy-tunnel-failed"), Tunnel("spark", 1):
        pass
    assert time.monotonic() - begin < 10


def test_a_relay_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh(tmp_path, monkeypatch, "echo ready; exec sleep 60")
    monkeypatch.setattr(way, "_ANSWER", 0.5)
    monkeypatch.setattr(way, "_BEAT", 60.0)
    with limit(20), via_spark(tmp_path) as via, fails(EngineError, "deploy-relay-failed"), via.way("spark"):
        pass


@pytest.mark.parametrize("script", ["exec sleep 60", "echo ready; exec sleep 60"], ids=["connection", "relay"])
def test_a_relay_that_does_not_answer_holds_up_no_signal(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh(tmp_path, monkeypatch, f"echo >>{tmp_path}/begun; {script}")

    def wait(via: way.Via) -> None:
        with contextlib.suppress(EngineError), via.way("spark"):
            pass

    with limit(45), pytest.raises(KeyboardInterrupt), via_spark(tmp_path) as via:
        threading.Thread(target=wait, args=(via,), daemon=True).start()
        while not (tmp_path / "begun").exists():
            time.sleep(0.05)
        time.sleep(0.5)
        raise KeyboardInterrupt


ANSWERS = {
    "port": ("0" * 5 + "80" + "0" * 6000, "{}"),
    "no port": ("-1", "{}"),
    "infinite": ("5050", '{"0": {DIGEST: 1e999}}'),
    "large": ("5050", '{"0": {DIGEST: 1%s}}' % ("0" * 400)),
    "negative": ("5050", '{"0": {DIGEST: -1}}'),
    "list": ("5050", "[]"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_relay_with_odd_answers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port, counts = (text.replace("DIGEST", f'"{Digest.of(b"{}")}"') for text in ANSWERS[name])
    (tmp_path / "port").write_text(port + "\n")
    (tmp_path / "counts").write_text(counts + "\n")
    script = f"echo ready; read a; read b; cat {tmp_path}/port; while read c; do cat {tmp_path}/counts; done"
    ssh(tmp_path, monkeypatch, script)
    monkeypatch.setattr(way, "_BEAT", 60.0)
    with limit(20), via_spark(tmp_path) as via:
        if port == "5050":
            with via.way("spark") as found:
                assert found.moved() == {}
        else:
            with fails(EngineError, "deploy-relay-failed"), via.way("spark"):
                pass
