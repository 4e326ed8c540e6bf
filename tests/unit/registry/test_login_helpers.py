"""Logins come from programs: credential helpers and stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.errors import NetworkError
from builder.registry.auth import Login
from tests.support.credentials import SECRET, config, encoded, helper
from tests.support.http_registry import Answer, Server, client


class TestHelpers:
    def test_a_helper_runs_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = helper(tmp_path, "test", f'echo \'{{"Username": "me", "Secret": "{SECRET}"}}\'', monkeypatch)
        found = config(tmp_path, credHelpers={"nvcr.io": "test"}, auths={"nvcr.io": {"auth": encoded("no:no")}})
        assert found.get("nvcr.io") == found.get("nvcr.io") == Login("me", SECRET)
        assert asked.read_text() == "get nvcr.io\n"

    def test_the_credential_store_has_docker_hub_under_its_old_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = helper(tmp_path, "test", f'echo \'{{"Username": "<token>", "Secret": "{SECRET}"}}\'', monkeypatch)
        assert config(tmp_path, credsStore="test").get("docker.io") == Login(identity_token=SECRET)
        assert asked.read_text() == "get https://index.docker.io/v1/\n"

    def test_a_helper_without_a_login_is_not_an_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        helper(tmp_path, "test", 'echo "credentials not found in native keychain"; exit 1', monkeypatch)
        found = config(tmp_path, credsStore="test")
        assert found.get("nvcr.io") is None
        assert not found.problem("nvcr.io")

    @pytest.mark.parametrize(
        ("name", "script"),
        [
            ("test", f"echo {SECRET} >&2; echo {SECRET}; exit 3"),
            ("test", f"echo {SECRET}"),
            ("test", "echo '[]'"),
            ("test", 'echo \'{"Username": 1, "Secret": 2}\''),
            ("absent", ""),
            ("../test", ""),
        ],
    )
    def test_a_failed_helper_means_anonymous_and_is_named_on_refusal(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server, name: str, script: str
    ) -> None:
        helper(tmp_path, "test", script, monkeypatch)
        found = config(tmp_path, credsStore=name)
        server.on("GET", "/v2/team/app/manifests/1", Answer(401, headers={"WWW-Authenticate": 'Basic realm="x"'}))
        with pytest.raises(NetworkError) as caught:
            client(found).manifest(server.ref())
        assert "docker-credential-" in caught.value.cause
        assert SECRET not in str(caught.value)
