"""Requests to a registry: retries, time limits, proxies and redirects."""

from __future__ import annotations

import contextlib
import email.utils
import json
import socket
import threading
import time
from pathlib import Path

import pytest

from builder.engine.connection import Adapter, CheckedResponse
from builder.errors import NetworkError
from builder.model.reference import Reference
from builder.oci.manifest import parse_manifest
from builder.registry.auth import Credentials, Login
from builder.registry.errors import TransientError
from builder.registry.transport import Transport, next_url
from builder.retry import RetryPolicy
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
)
from tests.support.trickle import trickle


class TestRetries:
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
        with fails(TransientError, "registry-busy"):
            client(attempts=3).manifest(server.ref())
        assert len(server.requests) == 3

    def test_a_long_retry_after_is_not_waited_for(self, server: Server) -> None:
        server.on("GET", MANIFEST, Answer(429, headers={"Retry-After": "3600"}))
        waited: list[float] = []
        with pytest.raises(NetworkError):
            client(sleep=waited.append).manifest(server.ref())
        assert waited == []

    def test_a_silent_server_times_out(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            ref = Reference.parse(f"127.0.0.1:{silent.getsockname()[1]}/a:1")
            with fails(TransientError, "connection-failed") as caught:
                client(read=0.05, attempts=2).manifest(ref)
        assert caught.value.code == 6
        assert caught.value.next

    def test_the_error_holds_the_retry_after(self, server: Server) -> None:
        server.on("GET", MANIFEST, Answer(429, headers={"Retry-After": "21600"}))
        with pytest.raises(NetworkError) as caught:
            client().manifest(server.ref())
        assert "21600 s" in caught.value.cause

    def test_refused_connection(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as gone:
            ref = Reference.parse(f"127.0.0.1:{gone.getsockname()[1]}/a:1")
        with fails(TransientError, "connection-failed") as caught:
            client().manifest(ref)
        assert "refused" in caught.value.what.lower()
        assert caught.value.next

    def test_a_server_without_tls(self, server: Server) -> None:
        with pytest.raises(NetworkError):
            Transport(RetryPolicy(attempts=1)).send("GET", f"https://{server.host}/")


class TestCutHeaders:
    """A connection that ends within the headers of an answer."""

    @pytest.mark.parametrize(
        "answer",
        [
            b"HTTP/1.1 200 OK\r\nContent-Length: 0",
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n",
            b"HTTP/1.1 200 OK\r\nDocker-Content-Digest: sha256:00",
            b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/half-an-addr",
            b"HTTP/1.1 404 Not Found\r\n",
        ],
    )
    def test_they_are_a_broken_connection(self, answer: bytes) -> None:
        asked = 0

        def serve() -> None:
            nonlocal asked
            with contextlib.suppress(OSError):
                while True:
                    connection = listener.accept()[0]
                    with connection:
                        connection.recv(65536)
                        asked += 1
                        connection.sendall(answer)

        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=serve, daemon=True).start()
            host = f"127.0.0.1:{listener.getsockname()[1]}"
            registry = client(attempts=3)
            with fails(TransientError, "connection-failed"):
                registry.has_blob(Reference.parse(f"{host}/a:1"), digest_of(BLOB))
            with fails(TransientError, "connection-failed"):
                registry.manifest(Reference.parse(f"{host}/a:1"))
            listener.shutdown(socket.SHUT_RDWR)
        assert asked == 6

    def test_under_tls_too(self) -> None:
        pools = Adapter().poolmanager.pool_classes_by_scheme
        assert {pool.ConnectionCls.response_class for pool in pools.values()} == {CheckedResponse}
        proxied = Adapter().proxy_manager_for("http://127.0.0.1:1").pool_classes_by_scheme
        assert proxied == pools


class TestTricklingAnswers:
    """Timeouts of sockets are not enough: each byte restarts them."""

    @pytest.mark.parametrize(
        ("begin", "again"),
        [
            (b"", b"H"),
            (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n", b" "),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
            (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
        ],
    )
    def test_slow_manifests_time_out(self, begin: bytes, again: bytes) -> None:
        with trickle(begin, again) as host:
            started = time.monotonic()
            with fails(NetworkError, "answer-too-slow") as caught:
                client(whole=0.3).manifest(Reference.parse(f"{host}/a:1"))
            assert 0.3 <= time.monotonic() - started < 5
        assert caught.value.code == 6

    def test_slow_configs_time_out(self) -> None:
        config = json.dumps({"os": "linux", "architecture": "arm64", "x": "y" * 100000}).encode()
        found = parse_manifest(image_manifest(config))
        slow = trickle(b"HTTP/1.1 200 OK\r\n\r\n", config[:1])
        with slow as host, fails(NetworkError, "answer-too-slow"):
            client(whole=0.3).config(Reference.parse(f"{host}/a:1"), found)

    def test_the_client_works_after_a_timeout(self, server: Server) -> None:
        server.on("GET", MANIFEST, Answer(200, image_manifest()))
        registry = client(whole=0.3)
        with trickle(b"", b"H") as host, pytest.raises(NetworkError):
            registry.manifest(Reference.parse(f"{host}/a:1"))
        assert registry.manifest(server.ref()).data == image_manifest()


def test_a_missing_ca_bundle_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/absent/ca.pem")
    with fails(NetworkError, "ca-bundle-missing"):
        Transport(RetryPolicy()).send("GET", "https://registry.invalid/v2/")


def test_malformed_headers(server: Server) -> None:
    server.on("GET", MANIFEST, Answer(200, image_manifest(), {"Content-Length": "5, 7"}))
    with fails(NetworkError, "http-answer-malformed"):
        client().manifest(server.ref())


class TestRedirects:
    def test_cookies_are_not_kept(self, server: Server, other: Server) -> None:
        crumbs = {"Set-Cookie": "session=s3cret; Path=/; Domain=127.0.0.1"}
        moved = Answer(307, headers={"Location": f"{other.url}/m", **crumbs})
        server.on("GET", MANIFEST, Answer(401, headers={"WWW-Authenticate": "Basic", **crumbs}), moved)
        other.on("GET", "/m", Answer(200, image_manifest(), crumbs))
        registry = client(Credentials(logins={server.host: Login("me", "s3cret")}))
        for _ in range(2):
            registry.manifest(server.ref())
        assert len(server.requests) == 3
        assert all("Cookie" not in request.headers for request in server.requests + other.requests)

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_credentials_are_not_sent_to_other_hosts(
        self, server: Server, other: Server, status: int, tmp_path: Path
    ) -> None:
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

    def test_netrc_is_not_used(
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
        with fails(NetworkError, "registry-storage-refused") as caught:
            list(registry.blob(server.ref(), digest_of(BLOB)))
        assert "private" not in str(caught.value)
        assert all("Authorization" not in request.headers for request in other.requests)

    @pytest.mark.parametrize(
        "target", ["", "/v2/team/app/manifests/1", "http://", "ftp://127.0.0.1/", "http://a:b@a.io/", "http://[/"]
    )
    def test_redirects_to_invalid_addresses(self, server: Server, target: str) -> None:
        server.on("GET", MANIFEST, Answer(307, headers={"Location": target}))
        with pytest.raises(NetworkError):
            client().manifest(server.ref())
        assert len(server.requests) < 10

    def test_the_body_of_a_redirect_is_not_read(self, server: Server, other: Server) -> None:
        endless = {"Location": f"{other.url}/m", "Content-Length": "99999999999"}
        server.on("GET", MANIFEST, Answer(307, headers=endless))
        other.on("GET", "/m", Answer(200, image_manifest()))
        assert client().manifest(server.ref()).data == image_manifest()

    def test_a_redirect_from_https_to_http_is_refused(self) -> None:
        with fails(NetworkError, "redirect-insecure"):
            next_url("https://a.example/x", "http://a.example/y")

    def test_loopback_needs_no_proxy(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        monkeypatch.delenv("no_proxy", raising=False)
        server.on("GET", MANIFEST, Answer(200, image_manifest()))
        assert client().manifest(server.ref()).data == image_manifest()
