"""A login is bound to the token server that its registry named first."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from builder.errors import NetworkError
from builder.registry.auth import Credentials, Login
from builder.registry.config import Endpoint
from builder.registry.realms import bind_realm
from builder.registry.token import Authorizer
from builder.registry.transport import Transport
from builder.retry import RetryPolicy
from tests.support.errors import fails
from tests.support.http_registry import Answer, Server

LAN = Endpoint("registry.lan:5000", "https://registry.lan:5000")
HUB = Endpoint("docker.io", "https://registry-1.docker.io")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "builder" / "realms"


def test_the_first_realm_is_reported_and_kept(state: Path, caplog: pytest.LogCaptureFixture) -> None:
    bind_realm(LAN, "https://auth.lan/token?x=1")
    bind_realm(LAN, "https://auth.lan/other")
    assert caplog.messages == ["registry.lan:5000: its login is sent to https://auth.lan:443 from now on"]
    assert (state / "registry.lan:5000").read_text() == "https://auth.lan:443\n"


@pytest.mark.parametrize("other", ["https://evil.example/token", "https://auth.lan:444/token", "http://auth.lan/token"])
def test_another_realm_is_refused(state: Path, other: str) -> None:
    bind_realm(LAN, "https://auth.lan/token")
    with fails(NetworkError, "realm-changed") as caught:
        bind_realm(LAN, other)
    assert str(state / "registry.lan:5000") in caught.value.next
    (state / "registry.lan:5000").unlink()
    bind_realm(LAN, other)


def test_a_realm_of_the_same_host_needs_no_binding(state: Path, caplog: pytest.LogCaptureFixture) -> None:
    bind_realm(LAN, "https://registry.lan/token")
    bind_realm(HUB, "https://auth.docker.io/token")
    assert not state.exists()
    assert not caplog.messages
    bind_realm(HUB, "https://auth.example/token")
    assert (state / "docker.io").exists()


@pytest.mark.parametrize("content", [b"", b"\xff", b"https://auth.lan:4430\n"])
def test_a_damaged_binding_is_refused(state: Path, content: bytes) -> None:
    state.mkdir(parents=True)
    (state / LAN.host).write_bytes(content)
    with fails(NetworkError, "realm-changed"):
        bind_realm(LAN, "https://auth.lan/token")
    (state / LAN.host).unlink()
    (state / LAN.host).mkdir()
    with fails(NetworkError, "realm-unreadable"):
        bind_realm(LAN, "https://auth.lan/token")


def test_without_a_place_to_write_it_is_reported_each_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/self/none")
    for _ in range(2):
        bind_realm(LAN, "https://auth.lan/token")
    assert len(caplog.messages) == 2


def test_only_requests_with_a_login_bind(server: Server, state: Path, caplog: pytest.LogCaptureFixture) -> None:
    server.on("GET", "/token", Answer(200, b'{"token": "good"}'))
    realm = f'Bearer realm="{server.url.replace("127.0.0.1", "localhost")}/token"'
    endpoint = Endpoint("127.0.0.1:9", "http://127.0.0.1:9")
    scopes = ("repository:a:pull",)
    transport = Transport(RetryPolicy(attempts=1))
    assert Authorizer(transport, Credentials()).answer(endpoint, scopes, realm) == "Bearer good"
    assert not state.exists()
    known = Credentials(logins={"127.0.0.1:9": Login("me", "password")})
    caplog.set_level(logging.WARNING)
    assert Authorizer(transport, known).answer(endpoint, scopes, realm) == "Bearer good"
    assert (state / "127.0.0.1:9").read_text().startswith("http://localhost:")
    (state / "127.0.0.1:9").write_text("https://auth.lan:443\n")
    sent = len(server.requests)
    with fails(NetworkError, "realm-changed"):
        Authorizer(transport, known).answer(endpoint, scopes, realm)
    assert len(server.requests) == sent
