"""The relay of `deploy --via` as a process of its own: each blob comes once, and goes on where it stopped."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from builder.digest import Digest
from builder.share import relay
from builder.share.library import Library, Offer
from builder.share.server import Server
from builder.store.store import Store
from tests.support.big_image import big_image


@dataclass
class Machine:
    """A machine with a relay, and what came to it through the uplink. port, process: of the relay."""

    home: Path
    asked: dict[str, Any]
    came: Counter[str] = field(default_factory=Counter)
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def folder(self) -> Path:
        return self.home / ".cache/builder-relay" / self.asked["image"][7:]

    def counted(self, count: Mapping[str, int]) -> bool:
        """Whether that many bytes of each blob came. The server counts them after the last one left it."""
        end = time.monotonic() + 10
        while self.came != count and time.monotonic() < end:
            time.sleep(0.01)
        return self.came == count

    def start(self) -> None:
        words = [sys.executable, "-IS", relay.__file__]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, env={"HOME": str(self.home)})
        self.port = int(self.tell(json.dumps(self.asked)))

    def tell(self, line: str) -> bytes:
        assert self.process is not None and self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def get(self, path: str, user: str = "0", password: str = "right", **headers: str) -> tuple[int, bytes]:
        """Status and body; a body that is cut short raises IncompleteRead."""
        login = "Basic " + b64encode(f"{user}:{password}".encode()).decode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("GET", f"/v2/big/{path}", headers={"Authorization": login, **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture
def machine(store: Store, tmp_path: Path) -> Iterator[Machine]:
    image = big_image(store, layers=2, megabytes=1)
    sizes = {layer.digest: layer.size for layer in image.layers}
    asked = {"image": image.digest, "blobs": sizes, "users": ["0", "1"], "token": "right", "ports": []}
    made = Machine(tmp_path / "home", asked)

    def sent(client: str, digest: Digest, size: int) -> None:
        made.came[digest] += size

    with Server(Library(store, [Offer("big", "latest", image.digest, None, 0.0)]), token="right", sent=sent) as server:
        asked["port"] = server.port
        yield made
    if made.process is not None:
        made.process.kill()
        made.process.communicate()


def test_each_blob_comes_once_and_only_for_those_who_know_the_token(machine: Machine) -> None:
    machine.start()
    assert machine.get("blobs/x", password="wrong")[0] == machine.get("blobs/x", user="2")[0] == 401
    assert machine.get(f"blobs/sha256:{'0' * 64}")[0] == machine.get("tags/none")[0] == 404
    status, manifest = machine.get(f"manifests/{machine.asked['image']}")
    assert status == 200 and Digest.of(manifest) == machine.asked["image"]
    for digest, size in machine.asked["blobs"].items():
        for user in ("0", "1"):
            status, body = machine.get(f"blobs/{digest}", user=user)
            assert status == 200 and Digest.of(body) == digest
        assert machine.get(f"blobs/{digest}", Range="bytes=5-8") == (206, body[5:9])
        assert machine.get(f"blobs/{digest}", Range=f"bytes={size - 3}-") == (206, body[-3:])
    assert machine.counted(machine.asked["blobs"])
    counted = json.loads(machine.tell("count"))
    assert counted["1"] == machine.asked["blobs"] and sum(counted["0"].values()) > sum(counted["1"].values())
    assert machine.tell("done") == b"" and not machine.folder.exists()


def test_a_later_relay_goes_on_where_one_was_killed(machine: Machine) -> None:
    machine.start()
    first, second = machine.asked["blobs"]
    _, body = machine.get(f"blobs/{first}")
    assert machine.process is not None
    machine.process.kill()
    machine.process.communicate()
    assert machine.counted({first: len(body)})
    machine.came.clear()
    (machine.folder / first[7:]).write_bytes(body[:700_000])
    (machine.folder / second[7:]).write_bytes(b"other bytes")
    (machine.folder / "stray").write_bytes(b"")
    machine.start()
    assert machine.get(f"blobs/{first}") == (200, body)
    assert machine.counted({first: len(body) - 700_000})
    # Docker sees that the answer ends early, and asks again.
    with pytest.raises(http.client.IncompleteRead):
        machine.get(f"blobs/{second}")
    assert Digest.of(machine.get(f"blobs/{second}")[1]) == second
    assert sorted(path.name for path in machine.folder.iterdir()) == sorted((first[7:], second[7:]))
