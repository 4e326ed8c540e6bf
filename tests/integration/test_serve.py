"""`builder serve`: the store as a registry that docker, skopeo and our own client read; and how it refuses."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from builder.digest import Digest
from builder.errors import NetworkError
from builder.model.reference import Reference
from builder.produce.image import Built
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from builder.registry.push import push_image
from builder.share.library import Library, Offer
from builder.share.server import Server
from builder.store.store import Store
from tests.support.cli import Cli
from tests.support.engine import FakeEngine, build
from tests.support.errors import fails
from tests.support.fixtures import MakePlan
from tests.support.mirror import Mirror
from tests.support.registry import is_installed

SKOPEO = ["skopeo", "--override-arch", "arm64", "copy", "--src-tls-verify=false", "--preserve-digests"]


@pytest.fixture
def built(make_plan: MakePlan, mirror: Mirror, store: Store, engine: FakeEngine) -> Built:
    return build(make_plan(), store, engine)


@pytest.fixture
def server(built: Built, store: Store) -> Iterator[Server]:
    with Server(Library(store)) as started:
        yield started


@pytest.fixture
def client() -> Registry:
    return Registry(config=RegistriesConfig(), credentials=Credentials())


def ask(server: Server, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(server.host, timeout=10)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, {name.lower(): value for name, value in response.headers.items()}, body


def test_our_client_reads_every_blob(server: Server, built: Built, client: Registry) -> None:
    place = Reference.parse(f"{server.host}/tiny:tiny")
    manifest, index = client.platform_manifest(place)
    assert (manifest.data, index) == (built.image.manifest, None)
    assert client.tags(place) == ["latest", "tiny"]
    for layer in manifest.layers:
        assert client.has_blob(place, layer.digest)
        assert Digest.of(b"".join(client.blob(place, layer.digest, layer.size))) == layer.digest
    assert client.referrers(place, manifest.digest, "x") == []


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")
@pytest.mark.parametrize("token", [None, "right"])
def test_skopeo_copies_it(built: Built, store: Store, tmp_path: Path, token: str | None) -> None:
    login = ["--src-creds", f"builder:{token}"] if token else []
    with Server(Library(store), token=token) as server:
        words = [*SKOPEO, *login, f"docker://{server.host}/tiny", f"oci:{tmp_path}/copy:x"]
        done = subprocess.run(words, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads((tmp_path / "copy" / "index.json").read_text())["manifests"]
    assert entry["digest"] == built.image.digest


def test_the_specification(server: Server, built: Built, store: Store) -> None:
    layer = built.image.layers[0]
    data = store.blob(layer.digest).read_bytes()
    path, size = f"/v2/tiny/blobs/{layer.digest}", layer.size
    assert ask(server, "GET", "/v2/")[0] == 200
    status, headers, body = ask(server, "HEAD", path)
    assert (status, headers["content-length"], headers["docker-content-digest"], body) == (
        200,
        str(size),
        layer.digest,
        b"",
    )
    ranges = {"0-0": (0, 1), "5-": (5, size), "2-9999999": (2, size), "-3": (size - 3, size), "-99999999": (0, size)}
    for text, (start, end) in ranges.items():
        status, headers, body = ask(server, "GET", path, Range=f"bytes={text}")
        whole = (start, end) == (0, size)
        assert (status, body) == (200 if whole else 206, data[start:end]), text
        assert whole or headers["content-range"] == f"bytes {start}-{end - 1}/{size}"
    for text in (f"{size}-", "-0"):
        status, headers, _ = ask(server, "GET", path, Range=f"bytes={text}")
        assert (status, headers["content-range"]) == (416, f"bytes */{size}")
    for text in ("bytes=5-2", "bytes=0-1,4-5", "lines=0-1", "bytes=-", "bytes=x"):
        assert ask(server, "GET", path, Range=text)[::2] == (200, data)
    manifest = f"/v2/tiny/manifests/{built.image.digest}"
    for selector in (manifest, "/v2/tiny/manifests/tiny", "/v2/tiny/manifests/latest"):
        status, headers, body = ask(server, "GET", selector)
        assert (status, body, headers["docker-content-digest"]) == (200, built.image.manifest, built.image.digest)
        assert headers["content-type"] == "application/vnd.oci.image.manifest.v1+json"
    status, headers, body = ask(server, "GET", "/v2/tiny/tags/list?n=1")
    assert json.loads(body) == {"name": "tiny", "tags": ["latest"]}
    assert json.loads(ask(server, "GET", headers["link"].partition(">")[0][1:])[2])["tags"] == ["tiny"]
    status, headers, body = ask(server, "GET", f"/v2/tiny/referrers/{built.image.digest}?artifactType=a/b")
    assert (json.loads(body)["manifests"], headers["oci-filters-applied"]) == ([], "artifactType")


def test_what_is_refused(server: Server, built: Built, store: Store) -> None:
    secret = store.put(b"an input of a build, which no image consists of")
    unknown = {
        f"/v2/tiny/blobs/{secret}": "BLOB_UNKNOWN",
        f"/v2/tiny/blobs/{built.image.digest}": "BLOB_UNKNOWN",
        f"/v2/other/blobs/{built.image.layers[0].digest}": "BLOB_UNKNOWN",
        "/v2/tiny/blobs/..": "BLOB_UNKNOWN",
        "/v2/tiny/blobs/sha256:..": "BLOB_UNKNOWN",
        "/v2/tiny/manifests/none": "MANIFEST_UNKNOWN",
        f"/v2/tiny/manifests/{secret}": "MANIFEST_UNKNOWN",
        "/v2/other/tags/list": "NAME_UNKNOWN",
        "/v2/../../etc/passwd": "NAME_UNKNOWN",
        "/": "NAME_UNKNOWN",
    }
    for path, code in unknown.items():
        status, _, body = ask(server, "GET", path)
        assert (status, json.loads(body)["errors"][0]["code"]) == (404, code), path
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        status, headers, _ = ask(server, method, "/v2/tiny/blobs/uploads/")
        assert (status, headers["connection"]) == (405, "close")
    # A page in a browser, whose name was made to lead here.
    assert ask(server, "GET", "/v2/tiny/tags/list", Host="evil.example:80")[0] == 403


def test_a_token_is_demanded(built: Built, store: Store, client: Registry) -> None:
    with Server(Library(store), token="right") as server:
        status, headers, _ = ask(server, "GET", "/v2/")
        assert (status, headers["www-authenticate"]) == (401, 'Basic realm="builder"')
        for password, wanted in (("right", 200), ("wrong", 401), ("", 401)):
            sent = base64.b64encode(f"any:{password}".encode()).decode()
            assert ask(server, "GET", "/v2/tiny/tags/list", Authorization=f"Basic {sent}")[0] == wanted
        for header in ("Basic", "Basic !", "Bearer right", "Basic " + base64.b64encode(b"right").decode()):
            assert ask(server, "GET", "/v2/", Authorization=header)[0] == 401
        with fails(NetworkError, "registry-access-refused"):
            client.tags(Reference.parse(f"{server.host}/tiny"))


@pytest.mark.skipif(not is_installed(), reason="docker-registry is not installed")
def test_layers_of_a_base_come_from_its_registry(
    host: str, built: Built, store: Store, client: Registry, tmp_path: Path
) -> None:
    base = Reference.parse(f"{host}/serve/base:1")
    push_image(built.image, store, base, lambda digest, what, size: None, client)
    other = Store(tmp_path / "other")
    other.put(built.image.manifest)
    offer = Offer("tiny", "x", built.image.digest, base.pinned(built.image.digest), 0.0)
    sent: list[tuple[Digest, int]] = []
    with Server(Library(other, [offer]), sent=lambda client, digest, size: sent.append((digest, size))) as server:
        place = Reference.parse(f"{server.host}/tiny")
        for layer in built.image.layers:
            assert client.has_blob(place, layer.digest)
            assert Digest.of(b"".join(client.blob(place, layer.digest, layer.size))) == layer.digest
        assert sent == [(layer.digest, layer.size) for layer in built.image.layers]
    gone = replace(offer, base="127.0.0.1:1/gone/base@" + built.image.digest)
    with Server(Library(other, [gone])) as server:
        assert ask(server, "GET", f"/v2/tiny/blobs/{built.image.layers[0].digest}")[0] == 502
    assert not any(other.has(layer.digest) for layer in built.image.layers)


def test_an_image_that_is_built_later_is_there(server: Server, make_plan: MakePlan, store: Store) -> None:
    engine = FakeEngine({"compiled": {"opt/widget/lib/libwidget.so": b"\x7fELF other"}})
    later = build(make_plan(sets={"compiled": {"version": "2.0"}}), store, engine)
    status, headers, _ = ask(server, "GET", "/v2/tiny/manifests/latest")
    assert (status, headers["docker-content-digest"]) == (200, later.image.digest)


def test_an_image_of_a_strangers_plan_takes_no_name(
    server: Server, built: Built, make_plan: MakePlan, store: Store
) -> None:
    """It may say the name of any recipe, and its image was then what other machines pulled as this recipe."""
    engine = FakeEngine({"compiled": {"opt/widget/lib/libwidget.so": b"\x7fELF other"}})
    plan = make_plan(sets={"compiled": {"version": "2.0"}})
    for _ in range(2):
        theirs = build(plan, store, engine, named=False)
    assert theirs.image.digest != built.image.digest
    for tag in ("latest", "tiny"):
        headers = ask(server, "GET", f"/v2/tiny/manifests/{tag}")[1]
        assert headers["docker-content-digest"] == built.image.digest
    assert ask(server, "GET", f"/v2/tiny/manifests/{theirs.image.digest}")[0] == 200
    # The same plan of the project is its recipe's, and stays so.
    for named in (True, False):
        build(plan, store, engine, named=named)
        assert ask(server, "GET", "/v2/tiny/manifests/latest")[1]["docker-content-digest"] == theirs.image.digest


def test_the_command(online: Cli, client: Registry) -> None:
    assert online("build", "--recipe", "tiny").code == 0
    online("serve", "--listen", "here").failed(2, "serve-address-invalid")
    process = online.start("serve", "--listen", "127.0.0.1:0")
    try:
        assert process.stdout is not None
        host = process.stdout.readline().strip()
        assert client.tags(Reference.parse(f"{host}/tiny")) == ["latest", "tiny"]
        online("serve", "--listen", host).failed(5, "serve-cannot-listen")
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 143 and "Traceback" not in err
    assert f"{host}/tiny:tiny  sha256:" in err
