"""Reads of the registry client: manifests, platforms, mirrors and tags."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from builder.errors import NetworkError, PinError
from builder.oci.manifest import DOCKER_LIST, DOCKER_MANIFEST, OCI_MANIFEST
from builder.registry.auth import Credentials, Login
from builder.registry.config import RegistryEntry
from builder.registry.errors import MismatchError, TransientError
from tests.support.errors import fails
from tests.support.http_registry import (
    BLOB,
    BLOB_PATH,
    MANIFEST,
    Answer,
    Request,
    Server,
    client,
    digest_of,
    entry,
    image_manifest,
    index,
    problem,
)


def mirrored(server: Server, *mirrors: str) -> dict[str, RegistryEntry]:
    return {server.host: RegistryEntry(mirror=mirrors)}


class TestManifests:
    @pytest.mark.parametrize("media_type", [OCI_MANIFEST, DOCKER_MANIFEST])
    def test_by_tag_and_by_digest(self, server: Server, media_type: str) -> None:
        data = image_manifest().replace(OCI_MANIFEST.encode(), media_type.encode())
        digest = server.serve_manifest(data, "1", media_type=media_type)
        registry = client()
        by_tag = registry.manifest(server.ref())
        assert (by_tag.data, by_tag.media_type, by_tag.digest) == (data, media_type, digest)
        assert registry.manifest(server.ref(f"team/app:other@{digest}")) == by_tag
        assert {OCI_MANIFEST, DOCKER_MANIFEST, DOCKER_LIST} < set(server.requests[0].headers["Accept"].split(", "))

    def test_a_wrong_digest_is_a_pin_error(self, server: Server) -> None:
        pinned = digest_of(b"the pinned one")
        server.on("GET", f"/v2/team/app/manifests/{pinned}", Answer(200, image_manifest()))
        with pytest.raises(PinError) as caught:
            client().manifest(server.ref(f"team/app:1@{pinned}"))
        assert caught.value.code == 4
        assert pinned in caught.value.what
        assert digest_of(image_manifest()) in caught.value.what

    @pytest.mark.parametrize("said", [digest_of(b"other"), "nonsense", "sha512:00", "md5:00", ""])
    def test_a_registry_that_names_another_digest_is_a_pin_error(self, server: Server, said: str) -> None:
        server.on("GET", MANIFEST, Answer(200, image_manifest(), {"Docker-Content-Digest": said}))
        with pytest.raises(PinError):
            client().manifest(server.ref())

    def test_a_missing_manifest_is_a_pin_error(self, server: Server) -> None:
        server.on("GET", MANIFEST, problem(404, "MANIFEST_UNKNOWN"))
        with fails(PinError, "registry-content-missing") as caught:
            client().manifest(server.ref())
        assert caught.value.code == 4
        assert caught.value.cause == "MANIFEST_UNKNOWN"
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("status", [401, 403])
    def test_a_refusal_is_a_network_error(self, server: Server, status: int) -> None:
        server.on("GET", MANIFEST, problem(status, "DENIED"))
        with pytest.raises(NetworkError) as caught:
            client().manifest(server.ref())
        assert caught.value.code == 6
        assert caught.value.next == f"docker login {server.host}"

    @pytest.mark.parametrize("body", [b"", b"<html>welcome to our wifi</html>", b'{"schemaVersion": 1}', b"[" * 99999])
    def test_a_malformed_manifest_is_a_network_error(self, server: Server, body: bytes) -> None:
        server.on("GET", MANIFEST, Answer(200, body))
        with fails(NetworkError, "manifest-malformed"):
            client().manifest(server.ref())

    def test_a_huge_manifest_is_not_read(self, server: Server) -> None:
        server.on("GET", MANIFEST, Answer(200, b" " * (4 << 20) + image_manifest()))
        with fails(NetworkError, "answer-too-long"):
            client().manifest(server.ref())

    def test_a_broken_connection_is_retried(self, server: Server) -> None:
        server.on("GET", MANIFEST, Answer(200, image_manifest(), cut=9), Answer(200, image_manifest()))
        assert client().manifest(server.ref()).data == image_manifest()


class TestPlatforms:
    def test_the_arm64_image_of_an_index(self, server: Server) -> None:
        arm, _ = server.serve_image(variant="v8")
        amd, _ = server.serve_image(architecture="amd64")
        told = {"vnd.docker.reference.type": "attestation-manifest"}
        data = index(entry(amd, "linux/amd64"), entry(arm, "linux/arm64/v8"), entry(amd, "unknown/unknown", **told))
        top = server.serve_manifest(data, "1", media_type="application/vnd.oci.image.index.v1+json")
        found, at = client().platform_manifest(server.ref())
        assert (found.digest, at) == (arm, top)
        assert client().platform_manifest(server.ref(), "linux/amd64")[0].digest == amd

    def test_an_image_without_an_index(self, server: Server) -> None:
        arm, _ = server.serve_image("1")
        found, at = client().platform_manifest(server.ref())
        assert (found.digest, at) == (arm, None)

    def test_an_amd64_image_pinned_as_arm64(self, server: Server) -> None:
        amd, _ = server.serve_image("1", architecture="amd64")
        with fails(PinError, "platform-mismatch") as caught:
            client().platform_manifest(server.ref(f"team/app:1@{amd}"))
        assert caught.value.code == 4

    def test_an_index_that_lists_amd64_as_arm64(self, server: Server) -> None:
        amd, _ = server.serve_image(architecture="amd64")
        server.serve_manifest(index(entry(amd, "linux/arm64"), media_type=DOCKER_LIST), "1", media_type=DOCKER_LIST)
        with fails(PinError, "platform-mismatch"):
            client().platform_manifest(server.ref())

    def test_an_index_without_arm64(self, server: Server) -> None:
        amd, _ = server.serve_image(architecture="amd64")
        server.serve_manifest(index(entry(amd, "linux/amd64")), "1", media_type="")
        with fails(PinError, "platform-missing"):
            client().platform_manifest(server.ref())

    def test_an_index_in_an_index(self, server: Server) -> None:
        arm, _ = server.serve_image()
        kind = "application/vnd.oci.image.index.v1+json"
        inner = server.serve_manifest(index(entry(arm, "linux/arm64")), media_type=kind)
        nested = {**entry(inner, "linux/arm64"), "mediaType": kind}
        server.serve_manifest(index(nested), "1", media_type=kind)
        with fails(PinError, "platform-missing") as caught:
            client().platform_manifest(server.ref())
        assert caught.value.cause == "it holds an index"
        server.serve_manifest(index(nested, entry(arm, "linux/arm64")), "1", media_type=kind)
        with fails(PinError, "platform-ambiguous"):
            client().platform_manifest(server.ref())
        server.serve_manifest(index(entry(inner, "linux/arm64")), "1", media_type=kind)
        with fails(PinError, "index-nested"):
            client().platform_manifest(server.ref())

    def test_a_config_with_another_digest(self, server: Server) -> None:
        _, data = server.serve_image("1")
        config = json.loads(data)["config"]
        server.on("GET", f"/v2/team/app/blobs/{config['digest']}", Answer(200, b"x" * config["size"]))
        with fails(MismatchError, "registry-content-mismatch"):
            client().platform_manifest(server.ref())


class TestMirrors:
    def test_mirrors_come_first_then_the_registry(self, server: Server, other: Server) -> None:
        data = image_manifest()
        other.on("GET", "/v2/hub/team/app/manifests/1", Answer(200, data), Answer(404))
        server.serve_manifest(data, "1")
        registry = client(entries=mirrored(server, "127.0.0.1:1/gone", f"{other.host}/hub"), attempts=1)
        assert registry.manifest(server.ref()).data == data
        assert server.requests == []
        assert registry.manifest(server.ref()).data == data
        assert len(server.requests) == 1

    @pytest.mark.parametrize("answer", [Answer(503), Answer(429, headers={"Retry-After": "30"}), Answer(200, cut=0)])
    def test_a_mirror_that_is_down_is_not_retried_while_another_endpoint_is_left(
        self, server: Server, other: Server, answer: Answer
    ) -> None:
        server.serve_manifest(image_manifest(), "1")
        other.on("GET", MANIFEST, replace(answer, body=image_manifest()))
        waited: list[float] = []
        registry = client(entries=mirrored(server, other.host), sleep=waited.append)
        for _ in range(3):
            assert registry.manifest(server.ref()).data == image_manifest()
        assert (len(other.requests), len(server.requests), waited) == (1, 3, [])

    def test_a_busy_mirror_is_retried_when_no_other_endpoint_answers(self, server: Server, other: Server) -> None:
        server.on("GET", MANIFEST, Answer(503))
        busy = Answer(429, headers={"Retry-After": "7"})
        other.on("GET", MANIFEST, busy, busy, Answer(200, image_manifest()))
        waited: list[float] = []
        registry = client(entries=mirrored(server, other.host), sleep=waited.append)
        for _ in range(2):
            assert registry.manifest(server.ref()).data == image_manifest()
        assert waited == [7]
        assert len(server.requests) == 1

    def test_the_error_holds_the_errors_of_mirrors(self, server: Server, other: Server) -> None:
        server.on("GET", MANIFEST, Answer(503))
        with fails(TransientError, "registry-busy") as caught:
            client(entries=mirrored(server, other.host)).manifest(server.ref())
        assert f"its mirror {other.host}: not in the registry" in caught.value.cause

    def test_a_digest_mismatch_outranks_other_errors(self, server: Server, other: Server) -> None:
        digest = server.serve_manifest(image_manifest(b"right"))
        other.on("GET", f"/v2/team/app/manifests/{digest}", Answer(200, image_manifest(b"wrong")))
        registry = client(entries=mirrored(server, other.host))
        ref = server.ref(f"team/app@{digest}")
        assert registry.manifest(ref).digest == digest
        server.on("GET", f"/v2/team/app/manifests/{digest}", Answer(500))
        with fails(MismatchError, "registry-content-mismatch"):
            registry.manifest(ref)

    def test_each_host_gets_its_own_login(self, server: Server, other: Server) -> None:
        for one in (server, other):
            one.on("GET", MANIFEST, Answer(401, headers={"WWW-Authenticate": "Basic"}))
        logins = {server.host: Login("origin", "a"), other.host: Login("mirror", "b")}
        with pytest.raises(NetworkError):
            client(Credentials(logins=logins), entries=mirrored(server, other.host)).manifest(server.ref())
        assert {request.headers.get("Authorization") for request in other.requests} == {None, logins[other.host].basic}
        assert {request.headers.get("Authorization") for request in server.requests} == {
            None,
            logins[server.host].basic,
        }

    def test_writes_go_to_the_registry(self, server: Server, other: Server) -> None:
        server.on("HEAD", BLOB_PATH, Answer(404))
        server.on("PUT", MANIFEST, Answer(201))
        registry = client(entries=mirrored(server, other.host))
        assert not registry.has_blob(server.ref(), digest_of(BLOB))
        registry.put_manifest(server.ref(), image_manifest(), OCI_MANIFEST)
        assert other.requests == []


class TestTags:
    def test_pages_are_followed(self, server: Server) -> None:
        path = "/v2/team/app/tags/list"
        link = {"Link": f'<{path}?n=2&last=b>; rel="next"'}
        server.on("GET", path, Answer(200, b'{"tags": ["a", "b"]}', link), Answer(200, b'{"tags": ["c"]}'))
        assert client().tags(server.ref()) == ["a", "b", "c"]
        assert server.requests[1].query == "n=2&last=b"

    def test_an_endless_list_of_pages_is_an_error(self, server: Server, other: Server) -> None:
        path = "/v2/team/app/tags/list"
        server.on("GET", path, Answer(200, b'{"tags": ["a"]}', {"Link": f'<{path}>; rel="next"'}))
        assert client().tags(server.ref()) == ["a"]
        server.on("GET", path, Answer(200, b'{"tags": ["a"]}', {"Link": f'<{other.url}/x>; rel="next"'}))
        with pytest.raises(NetworkError):
            client().tags(server.ref())
        assert other.requests == []

    def test_none(self, server: Server) -> None:
        server.on("GET", "/v2/team/app/tags/list", Answer(200, b'{"tags": null}'), problem(404, "NAME_UNKNOWN"))
        assert client().tags(server.ref()) == []
        with pytest.raises(PinError):
            client().tags(server.ref())

    @pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"tags": [1]}', b'{"tags": "abc"}', b"[" * 99999])
    def test_nonsense(self, server: Server, body: bytes) -> None:
        server.on("GET", "/v2/team/app/tags/list", Answer(200, body))
        with fails(NetworkError, "registry-tags-malformed"):
            client().tags(server.ref())


class TestThreads:
    def test_many_at_once(self, server: Server) -> None:
        lock, seen = threading.Lock(), set()

        def manifest(request: Request) -> Answer:
            with lock:
                seen.add(request.headers.get("Authorization"))
            if "Authorization" in request.headers:
                return Answer(200, image_manifest())
            return Answer(401, headers={"WWW-Authenticate": f'Bearer realm="{server.url}/token"'})

        server.on("GET", MANIFEST, manifest)
        server.on("GET", "/token", Answer(200, b'{"token": "t", "expires_in": 600}'))
        registry = client()
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: registry.manifest(server.ref()).digest, range(40)))
        assert set(found) == {digest_of(image_manifest())}
        assert seen == {None, "Bearer t"}


def test_http_libraries_are_loaded_only_when_needed() -> None:
    code = "import sys, builder.registry.client; print({'requests', 'urllib3', 'yaml'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
