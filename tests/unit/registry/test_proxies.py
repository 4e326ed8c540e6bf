"""Registries behind a proxy."""

from __future__ import annotations

import pytest

from builder.errors import NetworkError
from builder.registry.transport import Transport
from builder.retry import RetryPolicy
from tests.support.errors import fails
from tests.support.http_registry import (
    MANIFEST,
    Answer,
    Server,
    client,
)


class TestProxies:
    """Errors of a proxy name the proxy and not the registry."""

    URL = "https://registry.invalid/v2/"

    def fails(self, monkeypatch: pytest.MonkeyPatch, proxy: str) -> NetworkError:
        for name in ("no_proxy", "NO_PROXY", "HTTPS_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("https_proxy", proxy)
        with pytest.raises(NetworkError) as caught:
            Transport(RetryPolicy(attempts=1)).send("GET", self.URL)
        assert "s3cret" not in str(caught.value)
        return caught.value

    @pytest.mark.parametrize("proxy", ["://me:s3cret", "http://me:s3cret@:x", "gopher://me:s3cret@a.invalid"])
    def test_malformed_proxy_address(self, monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
        assert "proxy" in str(self.fails(monkeypatch, proxy))

    def test_proxy_that_refuses(self, monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
        server.answer = lambda request: Answer(407)  # type: ignore[method-assign]
        assert "the proxy refused" in self.fails(monkeypatch, f"http://me:s3cret@{server.host}").what

    def test_proxy_that_is_down(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "the proxy cannot be reached" in self.fails(monkeypatch, "http://me:s3cret@127.0.0.1:1").what

    def test_http_proxy_that_requires_a_login(self, server: Server) -> None:
        server.on("GET", MANIFEST, Answer(407))
        with fails(NetworkError, "proxy-login-required"):
            client().manifest(server.ref())
