from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from builder.errors import InvalidError, NetworkError
from builder.registry.auth import Credentials, Login
from builder.registry.config import Endpoint
from builder.registry.token import Authorizer
from builder.registry.transport import Transport
from builder.retry import RetryPolicy
from tests.support.credentials import SECRET, config, encoded
from tests.support.errors import fails
from tests.support.http_registry import Answer, Server, client, digest_of, image_manifest


class TestFiles:
    def test_auths(self, tmp_path: Path) -> None:
        found = config(tmp_path, auths={"nvcr.io": {"auth": encoded(f"$oauthtoken:{SECRET}:x")}})
        assert found.get("nvcr.io") == Login("$oauthtoken", f"{SECRET}:x")
        assert found.get("ghcr.io") is None

    def test_identity_tokens(self, tmp_path: Path) -> None:
        auths = {
            "a.io": {"auth": encoded("me:"), "identitytoken": SECRET},
            "b.io": {"auth": encoded(f"<token>:{SECRET}")},
        }
        found = config(tmp_path, auths=auths)
        assert found.get("a.io") == found.get("b.io") == Login(identity_token=SECRET)

    @pytest.mark.parametrize(
        "key", ["https://index.docker.io/v1/", "index.docker.io", "docker.io", "registry-1.docker.io"]
    )
    def test_docker_hub_has_many_names(self, tmp_path: Path, key: str) -> None:
        assert config(tmp_path, auths={key: {"auth": encoded("a:b")}}).get("docker.io") == Login("a", "b")

    @pytest.mark.parametrize("key", ["https://nvcr.io", "https://nvcr.io/v1/", "http://nvcr.io/v2/", "nvcr.io"])
    def test_registries_as_urls(self, tmp_path: Path, key: str) -> None:
        assert config(tmp_path, auths={key: {"auth": encoded("a:b")}}).get("nvcr.io") == Login("a", "b")

    def test_logins_of_other_hosts_are_not_used(self, tmp_path: Path) -> None:
        found = config(tmp_path, auths={"nvcr.io": {"auth": encoded("a:b")}})
        assert [found.get(host) for host in ("nvcr.io.evil.example", "evil-nvcr.io", "nvcr.io:5000", "cr.io")] == [
            None
        ] * 4

    def test_other_forms_that_docker_accepts(self, tmp_path: Path) -> None:
        text = encoded("a:b")
        assert config(tmp_path, auths={"a.io": {"auth": f"{text[:2]}\n{text[2:]}\n"}}).get("a.io") == Login("a", "b")
        assert config(tmp_path, auths={"a.io": None}, credHelpers=None).get("a.io") is None
        (tmp_path / "config.json").write_text(" \n")
        assert Credentials((tmp_path / "config.json",)).get("a.io") is None

    def test_podman_keeps_logins_by_path(self, tmp_path: Path) -> None:
        auths = {"quay.io/team": {"auth": encoded("team:x")}, "quay.io": {"auth": encoded("all:x")}}
        found = config(tmp_path, auths=auths)
        assert found.get("quay.io", "team/app") == Login("team", "x")
        assert found.get("quay.io", "teams/app") == Login("all", "x")

    def test_docker_comes_before_podman(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "docker").mkdir()
        (tmp_path / "containers").mkdir()
        both, podman = {"auth": encoded("docker:x")}, {"auth": encoded("podman:x")}
        (tmp_path / "docker" / "config.json").write_text(json.dumps({"auths": {"a.io": both}}))
        auth_file = tmp_path / "containers" / "auth.json"
        auth_file.write_text(json.dumps({"auths": {"a.io": podman, "b.io": podman}}))
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
        monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        assert Credentials.default().get("a.io") == Login("docker", "x")
        assert Credentials.default().get("b.io") == Login("podman", "x")
        monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "absent"))
        assert Credentials.default().get("b.io") is None

    @pytest.mark.parametrize(
        "text",
        [
            f'{{"auths": "{SECRET}"',
            f'["{SECRET}"]',
            f'{{"auths": "{SECRET}"}}',
            f'{{"auths": {{"nvcr.io": "{SECRET}"}}}}',
            f'{{"auths": {{"nvcr.io": {{"auth": "{SECRET}!"}}}}}}',
            f'{{"credHelpers": "{SECRET}"}}',
        ],
    )
    def test_error_of_a_malformed_file_hides_its_content(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "config.json"
        path.write_text(text)
        with pytest.raises(InvalidError) as caught:
            Credentials((path,)).get("nvcr.io")
        assert str(path) in str(caught.value)
        assert SECRET not in str(caught.value)

    def test_repr_hides_secrets(self, tmp_path: Path) -> None:
        found = config(tmp_path, auths={"a.io": {"auth": encoded(f"me:{SECRET}"), "identitytoken": SECRET}})
        known = Credentials(logins={"b.io": Login("me", SECRET)})
        shown = f"{found.get('a.io')!r} {known.get('b.io')} {found!r} {known} {Login('a', SECRET).__dict__.keys()}"
        assert SECRET not in shown


class TestTokens:
    def guarded(self, server: Server, *, realm: str = "", extra: str = "") -> None:
        """Serve team/app:1 to who brings the token `good`."""
        asks = f'Bearer realm="{realm or server.url + "/token"}",service="reg"{extra}'

        def manifest(request: Any) -> Answer:
            if request.headers.get("Authorization") == "Bearer good":
                return Answer(200, image_manifest())
            return Answer(401, headers={"WWW-Authenticate": asks})

        server.on("GET", "/v2/team/app/manifests/1", manifest)

    def test_anonymous(self, server: Server) -> None:
        self.guarded(server)
        server.on("GET", "/token", Answer(200, b'{"token": "good", "expires_in": 300}'))
        registry = client()
        registry.manifest(server.ref())
        registry.manifest(server.ref())
        manifest = "GET /v2/team/app/manifests/1"
        assert server.paths() == [manifest, "GET /token", manifest, manifest]
        assert server.requests[1].query == "service=reg&scope=repository%3Ateam%2Fapp%3Apull"
        assert "Authorization" not in server.requests[1].headers

    @pytest.mark.parametrize("status", [200, 403])
    def test_concurrent_401s_share_one_token_request(self, server: Server, status: int) -> None:
        together = threading.Barrier(12)

        def manifest(request: Any) -> Answer:
            if request.headers.get("Authorization") == "Bearer good":
                return Answer(200, image_manifest())
            together.wait(10)
            return Answer(401, headers={"WWW-Authenticate": f'Bearer realm="{server.url}/token"'})

        def token(request: Any) -> Answer:
            time.sleep(0.5)
            return Answer(status, b'{"token": "good"}')

        server.on("GET", "/v2/team/app/manifests/1", manifest)
        server.on("GET", "/token", token)
        registry = client(connect=20.0, read=20.0)

        def read(_: int) -> object:
            try:
                return registry.manifest(server.ref()).digest
            except NetworkError as error:
                return error.code

        with ThreadPoolExecutor(12) as pool:
            found = set(pool.map(read, range(12)))
        assert found == ({digest_of(image_manifest())} if status == 200 else {6})
        # A token is there for those who come late too; an error only for those who waited for it.
        assert server.paths().count("GET /token") in ({1} if status == 200 else range(1, 7))

    def test_a_password_goes_to_the_token_server_only(self, server: Server) -> None:
        self.guarded(server)
        server.on("GET", "/token", Answer(200, b'{"access_token": "good"}'))
        client(Credentials(logins={server.host: Login("me", SECRET)})).manifest(server.ref())
        assert [request.headers.get("Authorization") for request in server.requests] == [
            None,
            f"Basic {encoded(f'me:{SECRET}')}",
            "Bearer good",
        ]

    def test_an_identity_token_is_posted(self, server: Server) -> None:
        self.guarded(server)
        server.on("POST", "/token", Answer(200, b'{"access_token": "good"}'))
        client(Credentials(logins={server.host: Login(identity_token=SECRET)})).manifest(server.ref())
        sent = server.requests[1]
        assert sent.body.decode().split("&") == [
            "grant_type=refresh_token",
            "service=reg",
            "client_id=builder",
            "scope=repository%3Ateam%2Fapp%3Apull",
            f"refresh_token={SECRET}",
        ]
        assert SECRET not in sent.query

    def test_an_identity_token_is_not_posted_along_a_redirect(self, server: Server, other: Server) -> None:
        self.guarded(server)
        server.on("POST", "/token", Answer(307, headers={"Location": other.url + "/token"}))
        with pytest.raises(NetworkError):
            client(Credentials(logins={server.host: Login(identity_token=SECRET)})).manifest(server.ref())
        assert other.requests == []

    def test_basic(self, server: Server) -> None:
        login = Login("me", SECRET)

        def manifest(request: Any) -> Answer:
            if request.headers.get("Authorization") == login.basic:
                return Answer(200, image_manifest())
            return Answer(401, headers={"WWW-Authenticate": 'Basic realm="Registry Realm"'})

        server.on("GET", "/v2/team/app/manifests/1", manifest)
        client(Credentials(logins={server.host: login})).manifest(server.ref())
        with pytest.raises(NetworkError) as caught:
            client().manifest(server.ref())
        assert caught.value.next == f"docker login {server.host}"

    def test_an_expired_token_is_replaced(self, server: Server) -> None:
        # nvcr.io sends who brings a stale token to a server that turns anonymous users away.
        stale = {"WWW-Authenticate": f'Bearer realm="{server.url}/elsewhere",error="invalid_token"'}
        fresh = {"WWW-Authenticate": f'Bearer realm="{server.url}/token"'}
        good = "Bearer first"

        def manifest(request: Any) -> Answer:
            sent = request.headers.get("Authorization")
            if sent == good:
                return Answer(200, image_manifest())
            return Answer(401, headers=stale if sent else fresh)

        server.on("GET", "/v2/team/app/manifests/1", manifest)
        server.on("GET", "/token", Answer(200, b'{"token": "first"}'), Answer(200, b'{"token": "second"}'))
        registry = client()
        registry.manifest(server.ref())
        good = "Bearer second"
        registry.manifest(server.ref())
        assert "GET /elsewhere" not in server.paths()

    @pytest.mark.parametrize("status", [400, 401, 403])
    def test_a_refused_login_names_the_next_step_and_no_secret(self, server: Server, status: int) -> None:
        self.guarded(server)
        server.on("GET", "/token", Answer(status, SECRET.encode()))
        with pytest.raises(NetworkError) as caught:
            client(Credentials(logins={server.host: Login("me", SECRET)})).manifest(server.ref())
        assert caught.value.code == 6
        assert caught.value.next == f"docker login {server.host}"
        assert SECRET not in str(caught.value)
        assert encoded(f"me:{SECRET}") not in str(caught.value)

    def test_a_refused_token_is_requested_once_only(self, server: Server) -> None:
        self.guarded(server)
        server.on("GET", "/token", Answer(200, b'{"token": "useless"}'))
        with fails(NetworkError, "registry-access-refused"):
            client().manifest(server.ref())
        assert len(server.requests) == 3

    @pytest.mark.parametrize(
        "body", [b"", b"[]", b"{}", b'{"token": 5}', b'{"token": "a\\r\\nHost: b"}', b"<html>", b"[" * 99999]
    )
    def test_malformed_answers_of_a_token_server(self, server: Server, body: bytes) -> None:
        self.guarded(server)
        server.on("GET", "/token", Answer(200, body))
        with fails(NetworkError, "token-missing"):
            client().manifest(server.ref())

    def test_requests_to_a_busy_token_server_are_retried(self, server: Server) -> None:
        self.guarded(server)
        server.on("GET", "/token", Answer(429), Answer(503), Answer(200, b'{"token": "good", "expires_in": "soon"}'))
        assert client().manifest(server.ref()).data == image_manifest()
        assert [request.path for request in server.requests].count("/token") == 3

    @pytest.mark.parametrize(
        "realm",
        ["", "nonsense", "http://", "ftp://127.0.0.1/", "https://u:p@a.example/", "https://[", "http://a.example/t"],
    )
    def test_a_login_is_not_sent_to_an_unsafe_realm(self, realm: str) -> None:
        authorizer = Authorizer(
            Transport(RetryPolicy(attempts=1)), Credentials(logins={"localhost:1": Login("me", SECRET)})
        )
        for endpoint in (Endpoint("localhost:1", "http://localhost:1"), Endpoint("b.example", "https://b.example")):
            with fails(NetworkError, "token-server-unusable") as caught:
                authorizer.answer(endpoint, ("repository:a:pull",), f'Bearer realm="{realm}"')
            assert SECRET not in str(caught.value)
