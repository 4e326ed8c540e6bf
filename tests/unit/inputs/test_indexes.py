"""Wheels come from a package index, sources from Debian or GitHub."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest

from builder.errors import PinError
from builder.inputs.fetch import Hosts
from builder.model.inputs import Input, Location
from builder.store.store import Store
from tests.support.errors import fails
from tests.support.fetching import DATA, get
from tests.support.http_server import Server, body, status


def wheel(data: bytes) -> Input:
    file = "tool-1-py3-none-any.whl"
    return Input("wheel", "tool 1", file, hashlib.sha256(data).hexdigest(), len(data), (Location("index", "tool"),))


def page(*links: str) -> Callable[[object], None]:
    return body(("<html>" + "".join(links) + "</html>").encode(), content_type="text/html")


def link(data: bytes, file: str = "tool-1-py3-none-any.whl", base: str = "../../files") -> str:
    return f'<a href="{base}/{file}#sha256={hashlib.sha256(data).hexdigest()}">{file}</a>'


def test_a_wheel_is_found_by_name_in_the_index(store: Store, server: Server) -> None:
    server.on("/simple/tool/", page(link(b"", "tool-2-py3-none-any.whl"), link(DATA)))
    server.on("/files/tool-1-py3-none-any.whl", body(DATA))
    get(store, wheel(DATA), hosts=Hosts(indexes=(f"{server.address}/simple/",)))
    assert store.has(wheel(DATA).digest)


def test_an_index_that_lists_another_hash_is_a_pin_error(store: Store, server: Server) -> None:
    server.on("/simple/tool/", page(link(b"other")))
    with fails(PinError, "input-mismatch"):
        get(store, wheel(DATA), hosts=Hosts(indexes=(f"{server.address}/simple/",)))
    assert server.count("/files/tool-1-py3-none-any.whl") == 0


@pytest.mark.parametrize("answer", [page(), status(404)], ids=["unlisted", "no project"])
def test_a_wheel_that_no_index_lists_has_vanished(
    store: Store, server: Server, answer: Callable[[object], None]
) -> None:
    server.on("/simple/tool/", answer)
    with fails(PinError, "input-vanished"):
        get(store, wheel(DATA), hosts=Hosts(indexes=(f"{server.address}/simple/",)))


def test_an_index_that_answers_503_is_retried(store: Store, server: Server) -> None:
    server.on("/simple/tool/", status(503), page(link(DATA)))
    server.on("/files/tool-1-py3-none-any.whl", body(DATA))
    get(store, wheel(DATA), hosts=Hosts(indexes=(f"{server.address}/simple/",)))
    assert store.has(wheel(DATA).digest)


def test_the_second_index_is_used_when_the_first_lacks_the_file(store: Store, server: Server, other: Server) -> None:
    other.on("/simple/tool/", page(link(DATA)))
    other.on("/files/tool-1-py3-none-any.whl", body(DATA))
    get(store, wheel(DATA), hosts=Hosts(indexes=(f"{server.address}/simple/", f"{other.address}/simple/")))
    assert store.has(wheel(DATA).digest)


def test_a_source_comes_from_github_when_no_debian_mirror_has_it(store: Store, server: Server, other: Server) -> None:
    locations = (Location("debian", "pool/x.orig.tar.gz"), Location("github", "O/R/archive/refs/tags/v1.tar.gz"))
    source = Input("source", "x 1", "x-1.tar.gz", hashlib.sha256(DATA).hexdigest(), len(DATA), locations)
    other.on("/O/R/archive/refs/tags/v1.tar.gz", body(DATA))
    get(store, source, hosts=Hosts(debian=(f"{server.address}/debian",), github=other.address))
    assert server.count("/debian/pool/x.orig.tar.gz") == 1
    assert store.has(source.digest)
