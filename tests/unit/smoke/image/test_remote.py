"""An image in a registry: only the blobs that a check needs are requested, and none is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builder.digest import Digest
from builder.errors import EngineError, InvalidError, NetworkError, PinError
from builder.model.check import Check
from builder.model.reference import Reference
from builder.oci.manifest import OCI_INDEX, OCI_MANIFEST
from builder.registry.referrers import artifact, attach, attached, read_attached
from builder.smoke.image import remote
from builder.smoke.image.opened import OpenedImage, open_image
from builder.smoke.image.remote import fetch_image, remote_image
from builder.smoke.static.run import check_image
from builder.store.store import Store
from tests.support.errors import fails
from tests.support.http_registry import Answer, Request, Server, client, serving
from tests.support.images import SM_121, elf, fatbin, layout, link

BASE = {"usr/lib/big": bytes(range(256)) * 3000, "usr/lib/libx.so": elf(), "bin": link("usr/bin")}
NCCL = {"opt/nccl/lib/libnccl.so.2": elf(gpu=fatbin(SM_121))}
LAYERS: list[dict[str, Any]] = [BASE, {"usr/lib/vendor": b"2" * 5000}, NCCL, {"opt/last": b"z" * 3000}]
HISTORY = [
    {"created_by": "RUN make"},
    {"created_by": "COPY vendor"},
    {"created_by": "ENV X", "empty_layer": True},
    {"created_by": "builder: nccl"},
    {"created_by": "builder: marlin", "empty_layer": True},
    {"created_by": "builder: last"},
]


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


def serve(server: Server, where: Path, **more: Any) -> OpenedImage:
    """An image of four layers, the upper two made by builder."""
    here = layout(where / "image", LAYERS, history=HISTORY, Env=["PATH=/usr/bin"], **more)
    image = open_image(here)
    server.serve_manifest((here / "blobs/sha256" / image.digest.partition(":")[2]).read_bytes(), "1")
    for path in (here / "blobs" / "sha256").iterdir():
        server.on("GET", f"/v2/team/app/blobs/sha256:{path.name}", Answer(200, path.read_bytes()))
    server.requests.clear()
    return image


def fetched(server: Server, image: OpenedImage) -> list[int]:
    """The numbers of the requested layers, from 0."""
    digests = [blob.digest for blob in image.layers]
    asked = [path.rpartition("/")[2] for path in server.paths()]
    return sorted(digests.index(digest) for digest in asked if digest in digests)


def check(kind: str, **args: Any) -> Check:
    return Check(id=kind, tier="static", kind=kind, args=args)


def run(server: Server, *checks: Check, base: int = 2, **more: Any) -> dict[str, str]:
    image = remote_image(server.ref(), client())
    report = check_image(image, checks, base=base, **more)
    return {result.id: result.status for result in report.results}


def test_configuration_alone_fetches_no_layer(server: Server, tmp_path: Path) -> None:
    image = serve(server, tmp_path)
    found = run(server, check("env", name="PATH", value="/usr/bin"), check("layer-size"), always=())
    assert found == {"env": "pass", "layer-size": "pass"}
    assert fetched(server, image) == []
    assert len(set(server.paths())) == 2


def test_the_bases_layers_are_not_fetched(server: Server, tmp_path: Path) -> None:
    image = serve(server, tmp_path)
    found = run(server, check("cubin", path="/opt/nccl/lib/libnccl.so.2"))
    assert found["cubin"] == "pass"
    assert "fail" not in found.values()
    assert fetched(server, image) == [2, 3]


def test_a_single_path_is_searched_from_the_top_layer(server: Server, tmp_path: Path) -> None:
    image = serve(server, tmp_path)
    assert run(server, check("file", path="/opt/last"), base=0, always=()) == {"file": "pass"}
    assert fetched(server, image) == [3]
    server.requests.clear()
    assert run(server, check("cubin", path="/opt/nccl/lib/libnccl.so.2"), base=0, always=()) == {"cubin": "pass"}
    assert fetched(server, image) == [2, 3]
    server.requests.clear()
    assert run(server, check("file", path="/bin/none"), base=0, always=()) == {"file": "fail"}
    assert fetched(server, image) == [0, 1, 2, 3]


def test_blobs_of_the_registry_are_verified(server: Server, tmp_path: Path) -> None:
    image = serve(server, tmp_path)
    blob = image.layers[3]
    server.on("GET", f"/v2/team/app/blobs/{blob.digest}", Answer(200, image.layers[2].path.read_bytes()))
    with pytest.raises((PinError, NetworkError)):
        run(server)


def test_a_broken_connection_is_resumed(server: Server, tmp_path: Path) -> None:
    image = serve(server, tmp_path)
    path = f"/v2/team/app/blobs/{image.layers[3].digest}"
    data = image.layers[3].path.read_bytes()

    def rest(request: Request) -> Answer:
        start = int(request.headers["Range"].removeprefix("bytes=").rstrip("-"))
        return Answer(206, data[start:], {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"})

    server.on("GET", path, Answer(200, data, cut=len(data) // 2), rest)
    assert "fail" not in run(server).values()


def test_running_an_image_fetches_all_layers(server: Server, tmp_path: Path) -> None:
    image = serve(server, tmp_path)
    store = Store(tmp_path / "store")
    found = fetch_image(server.ref(), store, client())
    assert found.digest == image.digest
    assert [blob.present for blob in open_image(store.root, image.digest).layers] == [True] * 4
    server.requests.clear()
    fetch_image(server.ref(), store, client())
    assert fetched(server, image) == []


def test_an_image_larger_than_the_disk_is_not_fetched(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was fetched until the disk was full."""
    image = serve(server, tmp_path)
    monkeypatch.setattr(remote, "free_bytes", lambda folder: 10)
    with fails(EngineError, "disk-space-short"):
        fetch_image(server.ref(), Store(tmp_path / "store"), client())
    assert fetched(server, image) == []


def test_an_image_of_another_platform_is_refused(server: Server, tmp_path: Path) -> None:
    serve(server, tmp_path, architecture="amd64")
    with fails(PinError, "platform-mismatch"):
        remote_image(server.ref(), client())


class Registry:
    """Takes uploads of team/app. lists: whether it lists referrers itself."""

    def __init__(self, server: Server, lists: bool) -> None:
        self.server, self.lists = server, lists
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.listed: dict[str, dict[str, Any]] = {}
        server.on("POST", "/v2/team/app/blobs/uploads/", Answer(202, headers={"Location": "/v2/team/app/upload/1"}))
        server.on("PUT", "/v2/team/app/upload/1", self.take)

    def take(self, request: Request) -> Answer:
        digest = Digest.of(request.body)
        self.blobs[digest] = request.body
        self.server.on("HEAD", f"/v2/team/app/blobs/{digest}", Answer(200))
        return Answer(201)

    def list(self, manifest: bytes) -> None:
        """List an artifact, and one of another type: a registry need not support the filter."""
        known = json.loads(manifest)
        item = {"mediaType": OCI_MANIFEST, "digest": Digest.of(manifest), "size": len(manifest)}
        self.listed[item["digest"]] = {**item, "artifactType": known["artifactType"]}
        other = {**item, "digest": Digest.of(b"other"), "artifactType": "application/other"}
        body = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [other, *self.listed.values()]})
        path = f"/v2/team/app/referrers/{known['subject']['digest']}"
        self.server.on("GET", path, Answer(200, body.encode(), {"Content-Type": OCI_INDEX}))

    def accept(self, name: str) -> None:
        """Accept an upload of this manifest."""

        def put(request: Request) -> Answer:
            self.manifests[name] = request.body
            headers = {"Content-Type": request.headers["Content-Type"]}
            self.server.on("GET", f"/v2/team/app/manifests/{name}", Answer(200, request.body, headers))
            if self.lists:
                self.list(request.body)
            return Answer(201, headers={"OCI-Subject": "sha256:x"} if self.lists else {})

        self.server.on("PUT", f"/v2/team/app/manifests/{name}", put)


@pytest.mark.parametrize("lists", [True, False])
def test_results_are_attached(server: Server, lists: bool) -> None:
    registry = Registry(server, lists)
    subject = {"mediaType": OCI_MANIFEST, "digest": Digest.of(b"image"), "size": 5}
    kind = "application/vnd.example.results+json"
    for payload in (b"first", b"second", b"second"):
        made = artifact(subject, payload, kind, {})
        registry.accept(Digest.of(made))
        registry.accept(subject["digest"].replace(":", "-"))  # type: ignore[attr-defined]
        target = Reference.parse(f"{server.host}/team/app:1")
        assert attach(client(), target, subject, payload, kind) == Digest.of(made)
        uploaded = json.loads(registry.manifests[Digest.of(made)])
        assert (uploaded["subject"], uploaded["artifactType"]) == (subject, kind)
        assert registry.blobs[uploaded["layers"][0]["digest"]] == payload
        assert registry.blobs[uploaded["config"]["digest"]] == b"{}"
    listed = attached(client(), server.ref(), Digest.of(b"image"), kind)
    assert [item["artifactType"] for item in listed] == [kind, kind]
    for item, payload in zip(listed, (b"first", b"second"), strict=True):
        server.on("GET", f"/v2/team/app/blobs/{Digest.of(payload)}", Answer(200, payload))
        read = read_attached(client(), server.ref(), item, 100)
        assert (read.payload, read.subject) == (payload, subject["digest"])
        with fails(InvalidError, "artifact-too-large"):
            read_attached(client(), server.ref(), item, 4)
