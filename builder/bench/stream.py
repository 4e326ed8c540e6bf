"""Reading the answers of a server that may send without end: bounds for lines, bytes and seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator

import requests

from builder.engine.connection import Adapter

_CHUNK = 1 << 16
_LINE = 4 << 20
_MOST = 64 << 20
"""Bytes of one line, or of an answer that is read as a whole; and of a stream."""


class SlowAnswer(requests.Timeout):
    """The server sends, but does not end."""


def session() -> requests.Session:
    """A session without the logins of ~/.netrc, which would replace the key and travel along redirects."""
    made = requests.Session()
    made.auth = lambda request: request
    for scheme in ("https://", "http://"):
        made.mount(scheme, Adapter())
    made.headers["Accept-Encoding"] = "identity"
    return made


def pieces(answer: requests.Response, seconds: float, longest: int = _LINE) -> Iterator[list[bytes]]:
    """The lines of an answer that was requested with `stream=True`, as soon as they are there: those of one read each.

    longest: bytes of a line. Raises requests.RequestException when the connection breaks, and when a line or the answer
    is too long; SlowAnswer when it takes more than `seconds`.
    """
    import urllib3

    end, total, held = time.monotonic() + seconds, 0, bytearray()
    try:
        while piece := answer.raw.read1(_CHUNK, decode_content=False):
            total += len(piece)
            held += piece
            if b"\n" in piece:
                *whole, rest = bytes(held).split(b"\n")
                held = bytearray(rest)
                yield [line.rstrip(b"\r") for line in whole]
            if len(held) > longest or total > _MOST:
                raise requests.exceptions.ContentDecodingError(f"a line of over {longest} bytes, or {_MOST} in all")
            if time.monotonic() > end:
                raise SlowAnswer(f"it did not end within {seconds:g} s")
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        if isinstance(error, requests.RequestException):
            raise
        raise requests.ConnectionError(error) from error
    if held:
        yield [bytes(held)]


def lines(answer: requests.Response, seconds: float) -> Iterator[bytes]:
    """The lines of an answer, one by one. Raises as `pieces`."""
    for piece in pieces(answer, seconds):
        yield from piece


def text(answer: requests.Response, seconds: float) -> str:
    """The whole answer, as UTF-8. Raises as `lines`."""
    found = bytearray()
    for line in lines(answer, seconds):
        found += line + b"\n"
        if len(found) > _LINE:
            raise requests.exceptions.ContentDecodingError(f"an answer of more than {_LINE} bytes")
    return found.decode("utf-8", "replace")
