"""Download and upload of blobs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from builder.errors import NetworkError, PinError
from builder.oci.manifest import OCI_MANIFEST
from builder.registry.client import Registry
from builder.registry.config import RegistryEntry
from builder.registry.errors import MismatchError
from builder.store.blobs import rereading
from builder.store.store import Store
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
    image_manifest,
    problem,
    serving,
)


class TestBlobs:
    def test_streams_and_verifies(self, server: Server) -> None:
        server.on("GET", BLOB_PATH, Answer(200, BLOB))
        assert b"".join(client().blob(server.ref(), digest_of(BLOB), len(BLOB))) == BLOB

    def test_bytes_are_not_decoded(self, server: Server) -> None:
        data = b"\x1f\x8b not really gzip"
        server.on("GET", f"/v2/team/app/blobs/{digest_of(data)}", Answer(200, data, {"Content-Encoding": "gzip"}))
        assert b"".join(client().blob(server.ref(), digest_of(data))) == data

    @pytest.mark.parametrize("body", [BLOB[:-1] + b"x", BLOB[:-1], BLOB + b"x", b""])
    def test_a_digest_mismatch_is_a_pin_error(self, server: Server, body: bytes) -> None:
        server.on("GET", BLOB_PATH, Answer(200, body))
        got = b""
        with pytest.raises(PinError):
            for chunk in client().blob(server.ref(), digest_of(BLOB)):
                got += chunk
        assert got != body or not body

    @pytest.mark.parametrize("ranges", [True, False])
    def test_a_broken_download_is_resumed(self, server: Server, ranges: bool) -> None:
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

    def test_a_missing_blob_is_an_error_before_the_first_chunk(self, server: Server) -> None:
        with pytest.raises(PinError):
            client().blob(server.ref(), digest_of(BLOB))

    def test_has_blob(self, server: Server) -> None:
        server.on("HEAD", BLOB_PATH, Answer(200), Answer(404), Answer(403))
        registry = client()
        assert registry.has_blob(server.ref(), digest_of(BLOB))
        assert not registry.has_blob(server.ref(), digest_of(BLOB))
        with pytest.raises(NetworkError):
            registry.has_blob(server.ref(), digest_of(BLOB))

    @pytest.mark.parametrize("status", [400, 405, 501])
    def test_a_registry_without_head(self, server: Server, status: int) -> None:
        server.on("HEAD", BLOB_PATH, Answer(status))
        server.on("GET", BLOB_PATH, Answer(200, BLOB), Answer(206, BLOB[:1]), Answer(416), Answer(404), Answer(403))
        registry = client()
        assert [registry.has_blob(server.ref(), digest_of(BLOB)) for _ in range(4)] == [True, True, True, False]
        with fails(NetworkError, "registry-access-refused"):
            registry.has_blob(server.ref(), digest_of(BLOB))
        assert server.requests[1].headers["Range"] == "bytes=0-0"


class TestWrongMirrors:
    """A mirror that serves other bytes for one blob, before a registry that has the right ones."""

    @pytest.fixture
    def registry(self, server: Server, other: Server) -> Registry:
        server.on("GET", BLOB_PATH, Answer(200, BLOB))
        other.on("GET", BLOB_PATH, Answer(200, BLOB[:-1] + b"x"))
        return client(entries={server.host: RegistryEntry(mirror=(other.host,))})

    def test_the_blob_comes_from_the_registry(self, registry: Registry, server: Server, other: Server) -> None:
        read: list[bytes] = []

        def chunks() -> bytes:
            read.append(b"")
            for chunk in registry.blob(server.ref(), digest_of(BLOB), len(BLOB)):
                read[-1] += chunk
            return read[-1]

        assert rereading(chunks) == BLOB
        assert len(read) == 2
        assert b"".join(registry.blob(server.ref(), digest_of(BLOB))) == BLOB
        assert (len(other.requests), len(server.requests)) == (1, 2)

    def test_it_is_written_to_a_store(self, registry: Registry, server: Server, store: Store) -> None:
        store.fill(digest_of(BLOB), lambda: registry.blob(server.ref(), digest_of(BLOB), len(BLOB)))
        assert store.read(digest_of(BLOB)) == BLOB

    def test_it_is_uploaded(self, registry: Registry, server: Server) -> None:
        sent: list[bytes] = []

        def put(request: Request) -> Answer:
            sent.append(request.body)
            return Answer(201)

        with serving() as target:
            target.on("POST", "/v2/team/app/blobs/uploads/", Answer(202, headers={"Location": "/uploads/1"}))
            target.on("PUT", "/uploads/1", put)
            source = partial(registry.blob, server.ref(), digest_of(BLOB), len(BLOB))
            registry.upload(target.ref(), digest_of(BLOB), len(BLOB), source)
        # The first attempt ends within the body, before the registry could answer.
        assert sent[-1] == BLOB
        assert len(sent) == 2

    def test_without_a_right_one_it_is_a_pin_error(self, registry: Registry, server: Server) -> None:
        server.on("GET", BLOB_PATH, Answer(200, b"wrong, too"))
        with fails(MismatchError, "registry-content-mismatch"):
            rereading(lambda: list(registry.blob(server.ref(), digest_of(BLOB))))
        server.on("GET", BLOB_PATH, Answer(404))
        with fails(MismatchError, "registry-content-mismatch"):
            rereading(lambda: list(registry.blob(server.ref(), digest_of(BLOB))))


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
        assert sent.query == f"state=x&digest=sha256%3A{digest_of(BLOB).hex}"

    def test_an_empty_blob(self, server: Server) -> None:
        self.accepting(server)
        server.on("PUT", "/uploads/1", Answer(201))
        client().upload(server.ref(), digest_of(b""), 0, lambda: iter([]))
        assert server.requests[-1].headers["Content-Length"] == "0"

    @pytest.mark.parametrize(
        "first", [Answer(503), Answer(429, headers={"Retry-After": "3"}), Answer(401), Answer(404)]
    )
    def test_temporary_failures_restart_the_upload(self, server: Server, first: Answer) -> None:
        self.accepting(server, first)
        waited: list[float] = []
        client(sleep=waited.append).upload(server.ref(), digest_of(BLOB), len(BLOB), self.chunks)
        assert [request.method for request in server.requests] == ["POST", "PUT", "POST", "PUT"]
        assert waited == [3.0 if first.status == 429 else 0.5]

    def test_other_failures_are_not_retried(self, server: Server) -> None:
        self.accepting(server, problem(400, "DIGEST_INVALID"))
        with fails(NetworkError, "registry-status") as caught:
            client().upload(server.ref(), digest_of(BLOB), len(BLOB), self.chunks)
        assert caught.value.cause == "DIGEST_INVALID"
        assert len(server.requests) == 2

    @pytest.mark.parametrize("size", [len(BLOB), len(BLOB) + 1, 10])
    def test_chunks_with_another_digest_or_size(self, server: Server, size: int) -> None:
        self.accepting(server)
        with pytest.raises(PinError):
            client().upload(server.ref(), digest_of(b"other"), size, self.chunks)

    def test_a_registry_without_uploads(self, server: Server) -> None:
        with pytest.raises(NetworkError):
            client().upload(server.ref(), digest_of(BLOB), len(BLOB), self.chunks)

    def test_mount(self, server: Server) -> None:
        path = "/v2/team/app/blobs/uploads/"
        server.on("POST", path, Answer(201), Answer(202, headers={"Location": "/uploads/2"}), Answer(403), Answer(404))
        server.on("DELETE", "/uploads/2", Answer(204))
        registry, digest = client(), digest_of(BLOB)
        assert [registry.mount(server.ref(), digest, "nvidia/vllm") for _ in range(4)] == [True, False, False, False]
        assert server.requests[0].query == f"mount=sha256%3A{digest.hex}&from=nvidia%2Fvllm"
        assert "DELETE /uploads/2" in server.paths()

    def test_mount_requests_scopes_of_both_repositories(self, server: Server) -> None:
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
        assert client().put_manifest(server.ref("team/app"), data, OCI_MANIFEST) == digest_of(data)

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
