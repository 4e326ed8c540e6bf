"""Whole conversations with the three public registries, as `tests/golden/tokens` has them, request by request."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from requests.adapters import HTTPAdapter

from builder.errors import NetworkError
from builder.model.reference import Reference
from builder.oci.manifest import DOCKER_MANIFEST, OCI_MANIFEST
from builder.registry.auth import Credentials, Login
from builder.registry.client import Registry
from builder.registry.errors import TransientError
from builder.registry.transport import Transport
from tests.support.errors import fails
from tests.support.http_registry import Answer, Request, Server, client, digest_of, image_manifest

FOLDER = Path(__file__).resolve().parents[2] / "golden/tokens"
FLOWS = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.yaml"))}
CONFIG = json.dumps({"os": "linux", "architecture": "arm64"}).encode()
MANIFEST = image_manifest(CONFIG)
BODIES = {
    "manifest": MANIFEST,
    "docker manifest": MANIFEST.replace(OCI_MANIFEST.encode(), DOCKER_MANIFEST.encode()),
    "config": CONFIG,
}
Play = Callable[[str, str], Registry]


class Everywhere(HTTPAdapter):
    """Takes every https address to one server of ours, which sees the address as its path."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server = server

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        address = request.url or ""
        request.url = f"{self.server.url}/{address.replace('://', '/', 1)}"
        response = super().send(request, *args, **kwargs)
        response.url = address
        return response


@pytest.fixture
def play(server: Server, monkeypatch: pytest.MonkeyPatch) -> Play:
    """A client that holds this conversation of this registry; what it says is in the server's requests."""
    monkeypatch.setattr(Transport, "_pool", lambda self: Everywhere(server))

    def start(registry: str, name: str) -> Registry:
        script = iter(FLOWS[registry][name])

        def answer(request: Request) -> Answer:
            step = next(script)
            wanted, given = step["request"], step["response"]
            scheme, _, rest = request.path.lstrip("/").partition("/")
            address = f"{scheme}://{rest}" + (f"?{request.query}" if request.query else "")
            assert (request.method, address) == (wanted["method"], with_digest(wanted["url"]))
            assert request.headers.get("Authorization") == authorization(wanted, FLOWS[registry]["login"])
            return Answer(given["status"], body(given["body"]), dict(given["headers"]))

        server.answer = answer  # type: ignore[method-assign]
        login = FLOWS[registry]["login"]
        named = name in ("logged_in", "wrong_login")
        known = {registry: Login(login["username"], login["password"])} if named else {}
        return client(Credentials(logins=known))

    return start


def body(text: str) -> bytes:
    return BODIES.get(text, text.encode())


def with_digest(url: str) -> str:
    return str(url).replace("CONFIG", digest_of(CONFIG))


def authorization(wanted: dict[str, str], login: dict[str, str]) -> str | None:
    if wanted.get("authorization") == "basic":
        return "Basic " + base64.b64encode(f"{login['username']}:{login['password']}".encode()).decode()
    return wanted.get("authorization")


@pytest.mark.parametrize("name", ["anonymous", "logged_in", "expired"])
@pytest.mark.parametrize("registry", FLOWS)
def test_an_image_is_read(play: Play, server: Server, registry: str, name: str) -> None:
    found, index = play(registry, name).platform_manifest(Reference.parse(FLOWS[registry]["image"]))
    assert (found.data, index) in [(BODIES["manifest"], None), (BODIES["docker manifest"], None)]
    assert len(server.requests) == len(FLOWS[registry][name])


@pytest.mark.parametrize("registry", FLOWS)
def test_a_refusal_names_the_next_step(play: Play, server: Server, registry: str) -> None:
    with fails(NetworkError, "registry-access-refused") as caught:
        play(registry, "refused").manifest(Reference.parse(FLOWS[registry]["image"]))
    assert caught.value.next == f"docker login {registry}"
    assert len(server.requests) == len(FLOWS[registry]["refused"])


@pytest.mark.parametrize("registry", FLOWS)
def test_a_refused_login_has_a_cause_of_its_own(play: Play, server: Server, registry: str) -> None:
    with fails(NetworkError, "registry-access-refused") as caught:
        play(registry, "wrong_login").manifest(Reference.parse(FLOWS[registry]["image"]))
    assert (caught.value.cause, caught.value.next) == (
        "its token server refuses this login",
        f"docker login {registry}",
    )
    assert FLOWS[registry]["login"]["password"] not in str(caught.value)
    assert len(server.requests) == len(FLOWS[registry]["wrong_login"])


def test_the_pull_limit_of_docker_hub_is_named(play: Play, server: Server) -> None:
    with fails(TransientError, "registry-busy") as caught:
        play("docker.io", "limited").manifest(Reference.parse(FLOWS["docker.io"]["image"]))
    assert "a login may raise the limit" in caught.value.next
    assert len(server.requests) == 3


def test_all_three_registries_are_recorded() -> None:
    assert set(FLOWS) == {"docker.io", "nvcr.io", "ghcr.io"}
