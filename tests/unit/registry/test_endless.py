"""Parts of an answer that Python's http.client reads in one piece, and without end."""

from __future__ import annotations

import pytest

from builder.engine import httpread
from builder.model.reference import Reference
from builder.registry.errors import TransientError
from builder.registry.transport import Transport
from builder.retry import RetryPolicy
from tests.support.errors import fails
from tests.support.hostile import limit
from tests.support.http_registry import client
from tests.support.trickle import trickle


@pytest.mark.parametrize(
    ("begin", "again"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n \r\n0\r\n", b"A: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n \r\n0\r\nA:", b"b"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a"),
    ],
    ids=["trailers", "a trailer", "the size of a chunk"],
)
def test_what_python_reads_in_one_piece_has_an_end(begin: bytes, again: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit of an answer is looked at between two pieces of its body."""
    monkeypatch.setattr(httpread, "_SECONDS", 0.2)
    with trickle(begin, again) as host, limit(20), fails(TransientError, "connection-failed"):
        client(attempts=2).manifest(Reference.parse(f"{host}/a:1"))


@pytest.mark.parametrize("again", [b"HTTP/1.1 100 Continue\r\n\r\n", b"H"])
def test_the_answer_to_an_upload_has_an_end(again: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The upload of a stream has no time limit."""
    monkeypatch.setattr(httpread, "_SECONDS", 0.2)
    quick = Transport(RetryPolicy(attempts=1))
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    with trickle(interim, again) as host, limit(20), fails(TransientError, "connection-failed"):
        quick.send("PUT", f"http://{host}/", body=lambda: iter([b"x"]))
