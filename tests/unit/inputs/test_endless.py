"""Mirrors and package indexes that send without end where requests reads everything."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from builder.errors import NetworkError
from builder.inputs import fetch as fetching
from builder.inputs.fetch import Hosts
from builder.model.inputs import Input, Location
from builder.store.store import Store
from tests.support.errors import fails
from tests.support.fetching import DATA, get
from tests.support.hostile import limit
from tests.support.http_server import Handler, Server, body, deb
from tests.support.limits import ends

PATH = "/debian/pool/main/t/tool/tool_1%2Bb1_arm64.deb"


def endless(head: bytes) -> Callable[[Handler], None]:
    """An answer whose body has no end."""

    def answer(handler: Handler) -> None:
        handler.close_connection = True
        handler.wfile.write(head + b"\r\n\r\n")
        with contextlib.suppress(OSError):
            while True:
                handler.wfile.write(bytes(1 << 20))

    return answer


def test_the_body_of_a_redirect_is_not_read(store: Store, server: Server) -> None:
    """requests reads all of it into memory."""
    server.on(PATH, endless(b"HTTP/1.1 302 Found\r\nLocation: /there"))
    server.on("/there", body(DATA))
    with limit(20):
        ends(lambda: get(store, deb(DATA), hosts=Hosts(debian=(f"{server.address}/debian",))), memory=1 << 30)
    assert store.has(deb(DATA).digest)


def test_a_page_of_an_index_without_end_is_refused(
    store: Store, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_PAGE", 8 << 20)
    server.on("/simple/tool/", endless(b"HTTP/1.1 200 OK\r\nContent-Type: text/html"))
    wheel = Input("wheel", "tool 1", "tool-1-py3-none-any.whl", "0" * 64, 1, (Location("index", "tool"),))
    with limit(20), fails(NetworkError, "input-unreachable"):
        get(store, wheel, hosts=Hosts(indexes=(f"{server.address}/simple/",)))
