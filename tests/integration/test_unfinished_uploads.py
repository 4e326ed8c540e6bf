"""A large blob goes on where it stopped: after a broken connection, and in another process."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.digest import Digest
from builder.errors import NetworkError
from builder.model.reference import Reference
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from builder.retry import RetryPolicy
from tests.support.hostile import limit
from tests.support.http_registry import Answer, serving
from tests.support.project import ROOT
from tests.support.registry import running
from tests.support.strict_registry import StrictRegistry, strict_registry

BLOB = random.Random(1).randbytes(20 << 20)
DIGEST = Digest.of(BLOB)
PUSH = """
import sys
from builder.model.reference import Reference
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from builder.store.blobs import chunks_of
from pathlib import Path
host, digest, path = sys.argv[1:]
client = Registry(config=RegistriesConfig(), credentials=Credentials())
client.upload(Reference(host, "team/app"), digest, Path(path).stat().st_size, lambda: chunks_of(Path(path)))
"""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StrictRegistry]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with strict_registry() as started:
        yield started


def upload(host: str, blob: bytes = BLOB) -> None:
    policy = RetryPolicy(attempts=3, pause=0.01)
    client = Registry(config=RegistriesConfig(), credentials=Credentials(), retry_policy=policy)
    pieces = [blob[start : start + 1_000_000] for start in range(0, len(blob), 1_000_000)]
    client.upload(Reference(host, "team/app"), Digest.of(blob), len(blob), lambda: iter(pieces))


def stored(registry: StrictRegistry) -> bytes:
    return registry.repositories["team/app"].blobs[DIGEST]


def left(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "state/builder/uploads").iterdir())


def test_a_broken_connection_costs_nothing(registry: StrictRegistry, tmp_path: Path) -> None:
    # More breaks than attempts: an attempt that moved something does not count.
    registry.cuts = [3_000_000, 1_000_000, 5_000_000, 1, 2_000_000]
    upload(registry.host)
    assert stored(registry) == BLOB
    assert registry.received == len(BLOB)
    assert left(tmp_path) == []


def test_an_upload_that_could_not_start_starts_later(registry: StrictRegistry) -> None:
    # More than the attempts of one request.
    registry.busy = 5
    upload(registry.host)
    assert stored(registry) == BLOB


def test_a_killed_process_costs_nothing(registry: StrictRegistry, tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(BLOB)
    command = [sys.executable, "-c", PUSH, registry.host, DIGEST, str(tmp_path / "blob")]
    registry.pause = 0.5  # ten seconds for all of it
    process = subprocess.Popen(command, cwd=ROOT)
    while not registry.asked or "PATCH" not in registry.asked[-1]:
        time.sleep(0.02)
    time.sleep(0.7)
    process.send_signal(signal.SIGKILL)
    process.wait()
    registry.pause = 0.0
    deadline = time.monotonic() + 20
    while not registry.received and time.monotonic() < deadline:
        time.sleep(0.02)
    before = registry.received
    assert 0 < before < len(BLOB) and len(left(tmp_path)) == 1
    subprocess.run(command, cwd=ROOT, check=True)
    assert stored(registry) == BLOB
    assert registry.received == len(BLOB)
    assert left(tmp_path) == []


def test_a_registry_that_forgets_or_damages_an_upload(registry: StrictRegistry) -> None:
    for damage in (
        registry.uploads.clear,
        lambda: [data.__setitem__(0, data[0] ^ 1) for data in registry.uploads.values()],
    ):
        registry.cuts = [3_000_000] + [0] * 3
        with pytest.raises(NetworkError):
            upload(registry.host)
        damage()
        upload(registry.host)
        assert stored(registry) == BLOB
        registry.repositories.clear()


def test_a_registry_that_takes_no_parts(registry: StrictRegistry) -> None:
    registry.methods = ("POST", "PUT", "GET", "HEAD")
    upload(registry.host)
    assert stored(registry) == BLOB


@pytest.mark.skipif(shutil.which("docker-registry") is None, reason="docker-registry is not installed")
def test_a_registry_that_cannot_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docker's registry drops an upload whose connection broke: it starts again."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "blob").write_bytes(BLOB)
    with running(tmp_path) as host:
        command = [sys.executable, "-c", PUSH, host, DIGEST, str(tmp_path / "blob")]
        for seconds in (0.35, 0.4, 0.45):
            process = subprocess.Popen(command, cwd=ROOT)
            time.sleep(seconds)
            process.kill()
            process.wait()
        subprocess.run(command, cwd=ROOT, check=True)
        client = Registry(config=RegistriesConfig(), credentials=Credentials())
        assert b"".join(client.blob(Reference(host, "team/app"), DIGEST, len(BLOB))) == BLOB
    assert left(tmp_path) == []


def test_a_registry_that_forgets_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has always got a few bytes, and has then forgotten the upload."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = {"Location": "/v2/team/app/blobs/uploads/1"}
    with serving() as server, limit(30), pytest.raises(NetworkError):
        server.on("POST", "/v2/team/app/blobs/uploads/", Answer(202, headers=place))
        server.on("GET", place["Location"], Answer(204, headers={**place, "Range": "0-5"}))
        server.on("PATCH", place["Location"], *(Answer(503), Answer(404)) * 20, Answer(201))
        upload(server.host)
