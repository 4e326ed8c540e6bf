from __future__ import annotations

import email.utils
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from builder.errors import InvalidError, NetworkError, PinError, UsageError
from builder.oci.auth import Credentials, Login
from builder.oci.manifest import DOCKER_LIST, DOCKER_MANIFEST, OCI_MANIFEST
from builder.oci.reference import Reference
from builder.oci.registries import RegistriesConfig, RegistryEntry
from builder.oci.transport import Patience, Transport, next_url
from tests.unit.oci.http import Answer, Request, Server, client, digest_of, entry, image_manifest, index, problem

MANIFEST = "/v2/team/app/manifests/1"
BLOB = b"0123456789" * 50_000
BLOB_PATH = f"/v2/team/app/blobs/{digest_of(BLOB)}"


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

    def test_absent_is_a_pin_error(self, server: Server) -> None:
        server.on("GET", MANIFEST, problem(404, "MANIFEST_UNKNOWN"))
        with pytest.raises(PinError, match="MANIFEST_UNKNOWN") as caught:
            client().manifest(server.ref())
        assert caught.value.code == 4
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("status", [401, 403])
    def test_refused_is_a_network_error(self, server: Server, status: int) -> None:
        server.on("GET", MANIFEST, problem(status, "DENIED"))
        with pytest.raises(NetworkError) as caught:
            client().manifest(server.ref())
        assert caught.value.code == 6
        assert caught.value.next == f"docker login {server.host}"

    @pytest.mark.parametrize("body", [b"", b"<html>welcome to our wifi</html>", b'{"schemaVersion": 1}', b"[" * 99999])
    def test_nonsense_is_a_network_error(self, server: Server, body: bytes) -> None:
        server.on("GET", MANIFEST, Answer(200, body))
        with pytest.raises(NetworkError, match="no sense"):
            client().manifest(server.ref())

    def test_a_huge_manifest_is_not_read(self, server: Server) -> None:
        server.on("GET", MANIFEST, Answer(200, b" " * (4 << 20) + image_manifest()))
        with pytest.raises(NetworkError, match="longer"):
            client().manifest(server.ref())

    def test_a_broken_connection_is_taken_up_again(self, server: Server) -> None:
        server.on("GET", MANIFEST, Answer(200, image_manifest(), cut=9), Answer(200, image_manifest()))
        assert client().manifest(server.ref()).data == image_manifest()


class TestPlatforms:
    def test_an_index_leads_to_its_arm64_image(self, server: Server) -> None:
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
        with pytest.raises(PinError, match="linux/amd64") as caught:
            client().platform_manifest(server.ref(f"team/app:1@{amd}"))
        assert caught.value.code == 4

    def test_an_index_that_lists_amd64_as_arm64(self, server: Server) -> None:
        amd, _ = server.serve_image(architecture="amd64")
        server.serve_manifest(index(entry(amd, "linux/arm64"), media_type=DOCKER_LIST), "1", media_type=DOCKER_LIST)
        with pytest.raises(PinError, match="linux/amd64"):
            client().platform_manifest(server.ref())

    def test_an_index_without_arm64(self, server: Server) -> None:
        amd, _ = server.serve_image(architecture="amd64")
        server.serve_manifest(index(entry(amd, "linux/amd64")), "1", media_type="")
        with pytest.raises(PinError, match="no linux/arm64 image"):
            client().platform_manifest(server.ref())

    def test_a_config_that_is_another_one(self, server: Server) -> None:
        _, data = server.serve_image("1")
        config = json.loads(data)["config"]
        server.on("GET", f"/v2/team/app/blobs/{config['digest']}", Answer(200, b"x" * config["size"]))
        with pytest.raises(PinError, match="expected"):
            client().platform_manifest(server.ref())


class TestPatience:
    def test_retry_after_is_honoured(self, server: Server) -> None:
        date = email.utils.formatdate(time.time() + 30, usegmt=True)
        server.on(
            "GET",
            MANIFEST,
            Answer(429, headers={"Retry-After": "7"}),
            Answer(503, headers={"Retry-After": date}),
            Answer(502, headers={"Retry-After": "nonsense"}),
            Answer(200, image_manifest()),
        )
        waited: list[float] = []
        client(sleep=waited.append).manifest(server.ref())
        assert waited[0] == 7
        assert 27 < waited[1] <= 30
        assert waited[2] == 2.0

    @pytest.mark.parametrize("status", [429, 500, 504])
    def test_attempts_are_bounded(self, server: Server, status: int) -> None:
        server.on("GET", MANIFEST, Answer(status))
        with pytest.raises(NetworkError, match=str(status)):
            client(attempts=3).manifest(server.ref())
        assert len(server.requests) == 3

    def test_nobody_waits_an_hour(self, server: Server) -> None:
        server.on("GET", MANIFEST, Answer(429, headers={"Retry-After": "3600"}))
        waited: list[float] = []
        with pytest.raises(NetworkError):
            client(sleep=waited.append).manifest(server.ref())
        assert waited == []

    def test_silence_ends(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            ref = Reference.parse(f"127.0.0.1:{silent.getsockname()[1]}/a:1")
            with pytest.raises(NetworkError, match="in time") as caught:
                client(read=0.05, attempts=2).manifest(ref)
        assert caught.value.code == 6
        assert caught.value.next

    def test_nobody_there(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as gone:
            ref = Reference.parse(f"127.0.0.1:{gone.getsockname()[1]}/a:1")
        with pytest.raises(NetworkError, match=r"(?i)refused") as caught:
            client().manifest(ref)
        assert caught.value.next

    def test_a_server_without_tls(self, server: Server) -> None:
        with pytest.raises(NetworkError):
            Transport(Patience(attempts=1)).send("GET", f"https://{server.host}/")


class TestRedirects:
    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_credentials_stay_at_home(self, server: Server, other: Server, status: int, tmp_path: Path) -> None:
        login = Login("me", "s3cret")

        def blob(request: Request) -> Answer:
            if request.headers.get("Authorization") == login.basic:
                return Answer(status, headers={"Location": f"{other.url}/cdn?signature=private"})
            return Answer(401, headers={"WWW-Authenticate": "Basic"})

        server.on("GET", BLOB_PATH, blob)
        other.on("GET", "/cdn", Answer(200, BLOB))
        registry = client(Credentials(logins={server.host: login}))
        assert b"".join(registry.blob(server.ref(), digest_of(BLOB))) == BLOB
        assert [request.headers.get("Authorization") for request in other.requests] == [None]

    def test_netrc_is_not_for_registries(
        self, server: Server, other: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "netrc").write_text("default login me password s3cret\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        server.on("GET", MANIFEST, Answer(307, headers={"Location": f"{other.url}/m"}))
        other.on("GET", "/m", Answer(200, image_manifest()))
        client().manifest(server.ref())
        assert all("Authorization" not in request.headers for request in server.requests + other.requests)

    def test_another_host_cannot_ask_for_a_login(self, server: Server, other: Server) -> None:
        server.on("GET", BLOB_PATH, Answer(307, headers={"Location": f"{other.url}/cdn?signature=private"}))
        other.on("GET", "/cdn", Answer(401, headers={"WWW-Authenticate": "Basic"}))
        registry = client(Credentials(logins={server.host: Login("me", "s3cret"), other.host: Login("me", "s3cret")}))
        with pytest.raises(NetworkError, match="storage") as caught:
            list(registry.blob(server.ref(), digest_of(BLOB)))
        assert "private" not in str(caught.value)
        assert all("Authorization" not in request.headers for request in other.requests)

    @pytest.mark.parametrize(
        "target", ["", "/v2/team/app/manifests/1", "http://", "ftp://127.0.0.1/", "http://a:b@a.io/", "http://[/"]
    )
    def test_redirects_to_nowhere(self, server: Server, target: str) -> None:
        server.on("GET", MANIFEST, Answer(307, headers={"Location": target}))
        with pytest.raises(NetworkError):
            client().manifest(server.ref())
        assert len(server.requests) < 10

    def test_the_body_of_a_redirect_is_not_read(self, server: Server, other: Server) -> None:
        endless = {"Location": f"{other.url}/m", "Content-Length": "99999999999"}
        server.on("GET", MANIFEST, Answer(307, headers=endless))
        other.on("GET", "/m", Answer(200, image_manifest()))
        assert client().manifest(server.ref()).data == image_manifest()

    def test_https_stays_https(self) -> None:
        with pytest.raises(NetworkError, match="https"):
            next_url("https://a.example/x", "http://a.example/y")

    def test_no_proxy_is_asked_for_loopback(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        monkeypatch.delenv("no_proxy", raising=False)
        server.on("GET", MANIFEST, Answer(200, image_manifest()))
        client().manifest(server.ref())


class TestBlobs:
    def test_streams_and_verifies(self, server: Server) -> None:
        server.on("GET", BLOB_PATH, Answer(200, BLOB))
        assert b"".join(client().blob(server.ref(), digest_of(BLOB), len(BLOB))) == BLOB

    def test_bytes_stay_as_they_are(self, server: Server) -> None:
        data = b"\x1f\x8b not really gzip"
        server.on("GET", f"/v2/team/app/blobs/{digest_of(data)}", Answer(200, data, {"Content-Encoding": "gzip"}))
        assert b"".join(client().blob(server.ref(), digest_of(data))) == data

    @pytest.mark.parametrize("body", [BLOB[:-1] + b"x", BLOB[:-1], BLOB + b"x", b""])
    def test_other_bytes_are_a_pin_error(self, server: Server, body: bytes) -> None:
        server.on("GET", BLOB_PATH, Answer(200, body))
        got = b""
        with pytest.raises(PinError):
            for chunk in client().blob(server.ref(), digest_of(BLOB)):
                got += chunk
        assert got != body or not body

    @pytest.mark.parametrize("ranges", [True, False])
    def test_goes_on_where_the_connection_broke(self, server: Server, ranges: bool) -> None:
        def rest(request: Request) -> Answer:
            start = int(request.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if not ranges:
                return Answer(200, BLOB)
            return Answer(206, BLOB[start:], {"Content-Range": f"bytes {start}-{len(BLOB) - 1}/{len(BLOB)}"})

        server.on("GET", BLOB_PATH, Answer(200, BLOB, cut=200_000), rest)
        assert b"".join(client().blob(server.ref(), digest_of(BLOB))) == BLOB

    def test_a_connection_that_always_breaks(self, server: Server) -> None:
        server.on("GET", BLOB_PATH, Answer(200, BLOB, cut=1000))
        with pytest.raises(NetworkError):
            list(client().blob(server.ref(), digest_of(BLOB)))
        assert len(server.requests) == 4

    def test_absent_is_told_at_once(self, server: Server) -> None:
        with pytest.raises(PinError):
            client().blob(server.ref(), digest_of(BLOB))

    def test_has_blob(self, server: Server) -> None:
        server.on("HEAD", BLOB_PATH, Answer(200), Answer(404), Answer(403))
        registry = client()
        assert registry.has_blob(server.ref(), digest_of(BLOB))
        assert not registry.has_blob(server.ref(), digest_of(BLOB))
        with pytest.raises(NetworkError):
            registry.has_blob(server.ref(), digest_of(BLOB))

    def test_digests_do_not_become_paths(self, server: Server) -> None:
        with pytest.raises(UsageError):
            client().blob(server.ref(), "sha256:../../../secret")
        assert server.requests == []


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

    def test_the_digest_decides(self, server: Server, other: Server) -> None:
        digest = server.serve_manifest(image_manifest(b"right"))
        other.on("GET", f"/v2/team/app/manifests/{digest}", Answer(200, image_manifest(b"wrong")))
        registry = client(entries=mirrored(server, other.host))
        ref = server.ref(f"team/app@{digest}")
        assert registry.manifest(ref).digest == digest
        server.on("GET", f"/v2/team/app/manifests/{digest}", Answer(500))
        with pytest.raises(PinError, match="expected"):
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


class TestUploads:
    def accepting(self, server: Server, *puts: Any) -> None:
        location = {"Location": "/uploads/1?state=x"}
        server.on("POST", "/v2/team/app/blobs/uploads/", Answer(202, headers=location))
        server.on("PUT", "/uploads/1", *puts, Answer(201, headers={"Docker-Content-Digest": digest_of(BLOB)}))

    def chunks(self) -> Iterator[bytes]:
        for start in range(0, len(BLOB), 100_000):
            yield BLOB[start : start + 100_000]

    def test_one_put_with_its_length(self, server: Server) -> None:
        self.accepting(server)
        client().upload(server.ref(), digest_of(BLOB), len(BLOB), self.chunks)
        sent = server.requests[-1]
        assert sent.body == BLOB
        assert sent.headers["Content-Length"] == str(len(BLOB))
        assert sent.query == f"state=x&digest=sha256%3A{digest_of(BLOB).removeprefix('sha256:')}"

    def test_an_empty_blob(self, server: Server) -> None:
        self.accepting(server)
        server.on("PUT", "/uploads/1", Answer(201))
        client().upload(server.ref(), digest_of(b""), 0, lambda: iter([]))
        assert server.requests[-1].headers["Content-Length"] == "0"

    @pytest.mark.parametrize(
        "first", [Answer(503), Answer(429, headers={"Retry-After": "3"}), Answer(401), Answer(404)]
    )
    def test_failures_that_pass_start_it_over(self, server: Server, first: Answer) -> None:
        self.accepting(server, first)
        waited: list[float] = []
        client(sleep=waited.append).upload(server.ref(), digest_of(BLOB), len(BLOB), self.chunks)
        assert [request.method for request in server.requests] == ["POST", "PUT", "POST", "PUT"]
        assert waited == [3.0 if first.status == 429 else 0.5]

    def test_other_failures_do_not(self, server: Server) -> None:
        self.accepting(server, problem(400, "DIGEST_INVALID"))
        with pytest.raises(NetworkError, match="DIGEST_INVALID"):
            client().upload(server.ref(), digest_of(BLOB), len(BLOB), self.chunks)
        assert len(server.requests) == 2

    @pytest.mark.parametrize("size", [len(BLOB), len(BLOB) + 1, 10])
    def test_chunks_that_are_not_the_blob(self, server: Server, size: int) -> None:
        self.accepting(server)
        with pytest.raises(PinError):
            client().upload(server.ref(), digest_of(b"other"), size, self.chunks)

    def test_a_blob_that_cannot_be_written_there(self, server: Server) -> None:
        with pytest.raises(NetworkError):
            client().upload(server.ref(), digest_of(BLOB), len(BLOB), self.chunks)

    def test_mount(self, server: Server) -> None:
        path = "/v2/team/app/blobs/uploads/"
        server.on("POST", path, Answer(201), Answer(202, headers={"Location": "/uploads/2"}), Answer(403), Answer(404))
        server.on("DELETE", "/uploads/2", Answer(204))
        registry, digest = client(), digest_of(BLOB)
        assert [registry.mount(server.ref(), digest, "nvidia/vllm") for _ in range(4)] == [True, False, False, False]
        assert server.requests[0].query == f"mount=sha256%3A{digest[7:]}&from=nvidia%2Fvllm"
        assert "DELETE /uploads/2" in server.paths()

    def test_mount_asks_for_both_repositories(self, server: Server) -> None:
        asks = {"WWW-Authenticate": f'Bearer realm="{server.url}/token",scope="repository:team/app:pull,push"'}
        server.on("POST", "/v2/team/app/blobs/uploads/", Answer(401, headers=asks), Answer(201))
        server.on("GET", "/token", Answer(200, b'{"token": "t"}'))
        assert client().mount(server.ref(), digest_of(BLOB), "nvidia/vllm")
        scopes = "scope=repository%3Ateam%2Fapp%3Apull%2Cpush&scope=repository%3Anvidia%2Fvllm%3Apull"
        assert server.requests[1].query == scopes

    def test_put_manifest(self, server: Server) -> None:
        data = image_manifest()
        server.on("PUT", MANIFEST, Answer(201, headers={"Docker-Content-Digest": digest_of(data)}))
        assert client().put_manifest(server.ref(), data, OCI_MANIFEST) == digest_of(data)
        assert server.requests[0].headers["Content-Type"] == OCI_MANIFEST
        assert server.requests[0].body == data

    def test_put_manifest_without_a_tag(self, server: Server) -> None:
        data = image_manifest()
        server.on("PUT", f"/v2/team/app/manifests/{digest_of(data)}", Answer(201))
        client().put_manifest(server.ref("team/app"), data, OCI_MANIFEST)

    def test_a_registry_that_changes_the_manifest(self, server: Server) -> None:
        server.on("PUT", MANIFEST, Answer(201, headers={"Docker-Content-Digest": digest_of(b"changed")}))
        with pytest.raises(PinError):
            client().put_manifest(server.ref(), image_manifest(), OCI_MANIFEST)

    def test_a_manifest_that_is_not_the_pinned_one_is_not_sent(self, server: Server) -> None:
        with pytest.raises(PinError):
            client().put_manifest(server.ref().at(digest_of(b"other")), image_manifest(), OCI_MANIFEST)
        assert server.requests == []

    @pytest.mark.parametrize("status", [400, 403, 404, 413])
    def test_a_refused_manifest_is_a_network_error(self, server: Server, status: int) -> None:
        server.on("PUT", MANIFEST, problem(status, "MANIFEST_BLOB_UNKNOWN"))
        with pytest.raises(NetworkError):
            client().put_manifest(server.ref(), image_manifest(), OCI_MANIFEST)


class TestTags:
    def test_pages_are_followed(self, server: Server) -> None:
        path = "/v2/team/app/tags/list"
        link = {"Link": f'<{path}?n=2&last=b>; rel="next"'}
        server.on("GET", path, Answer(200, b'{"tags": ["a", "b"]}', link), Answer(200, b'{"tags": ["c"]}'))
        assert client().tags(server.ref()) == ["a", "b", "c"]
        assert server.requests[1].query == "n=2&last=b"

    def test_a_link_that_leads_nowhere_ends(self, server: Server, other: Server) -> None:
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
        with pytest.raises(NetworkError, match="no sense"):
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


class TestConfiguration:
    def load(self, folder: Path, text: str) -> RegistriesConfig:
        path = folder / "registries.yaml"
        path.write_text(text)
        return RegistriesConfig.load(path)

    def test_only_loopback_and_insecure_registries_go_without_tls(self, tmp_path: Path) -> None:
        config = self.load(tmp_path, "lan.example:5000:\n  insecure: true\n")
        bases = {name: config.origin(name).base for name in (
            "docker.io", "nvcr.io", "localhost:5000", "127.0.0.1:5000", "[::1]:5000", "lan.example:5000", "lan.example",
            "localhost.evil.example", "127.0.0.1.evil.example",
        )}  # fmt: skip
        assert bases == {
            "docker.io": "https://registry-1.docker.io",
            "nvcr.io": "https://nvcr.io",
            "localhost:5000": "http://localhost:5000",
            "127.0.0.1:5000": "http://127.0.0.1:5000",
            "[::1]:5000": "http://[::1]:5000",
            "lan.example:5000": "http://lan.example:5000",
            "lan.example": "https://lan.example",
            "localhost.evil.example": "https://localhost.evil.example",
            "127.0.0.1.evil.example": "https://127.0.0.1.evil.example",
        }

    def test_mirrors(self, tmp_path: Path) -> None:
        text = "docker.io:\n  mirror: [lan.example:5000/hub, b.example]\nlan.example:5000: {insecure: true}\n"
        found = self.load(tmp_path, text).endpoints("docker.io")
        assert [(one.base, one.repository("library/ubuntu")) for one in found] == [
            ("http://lan.example:5000", "hub/library/ubuntu"),
            ("https://b.example", "library/ubuntu"),
            ("https://registry-1.docker.io", "library/ubuntu"),
        ]

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ("nvcr.io:\n  mirror: [a.example\n", 3),
            ("a.io: {}\nnvcr.io:\n  insecure: maybe\n", 3),
            ("a.io: {}\nnvcr.io:\n  insecur: true\n", 3),
            ("nvcr.io:\n  mirror:\n    - a.example\n    - https://b.example\n", 4),
            ("nvcr.io:\n  mirror: [a.example/../x]\n", 2),
            ("\nhttps://nvcr.io: {}\n", 2),
            ("nvcr.io: {}\nnvcr.io: {insecure: true}\n", 2),
            ("- nvcr.io\n", 1),
            ("nvcr.io: &a\n  again: *a\n", 2),
        ],
    )
    def test_mistakes_are_told_with_their_line(self, tmp_path: Path, text: str, line: int) -> None:
        with pytest.raises(InvalidError) as caught:
            self.load(tmp_path, text)
        assert caught.value.where == f"{tmp_path / 'registries.yaml'}:{line}"

    @pytest.mark.parametrize(
        "text",
        [
            "\x00",
            "a: !!python/object:os.system {}",
            "? [a]\n: b",
            "{" * 5000,
            "5: {}",
            "é: {}",
            "a: &a\n  mirror: [*a]",
        ],
    )
    def test_nonsense_is_invalid(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(InvalidError):
            self.load(tmp_path, text)

    def test_where_it_is_looked_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("BUILDER_REGISTRIES", raising=False)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        assert len(RegistriesConfig.load().endpoints("a.io")) == 1
        (tmp_path / "builder").mkdir()
        (tmp_path / "builder" / "registries.yaml").write_text("a.io: {mirror: [b.io]}\n")
        assert len(RegistriesConfig.load().endpoints("a.io")) == 2
        monkeypatch.setenv("BUILDER_REGISTRIES", str(tmp_path / "absent"))
        with pytest.raises(InvalidError):
            RegistriesConfig.load()


def test_http_libraries_are_loaded_only_when_needed() -> None:
    code = "import sys, builder.oci.registry; print({'requests', 'urllib3', 'yaml'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
