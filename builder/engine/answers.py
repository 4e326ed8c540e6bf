"""Reads the answers of a docker daemon within bounds: with `deploy` it is one of another machine."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import docker
import docker.errors
import requests
from docker.transport.unixconn import UnixHTTPConnection

from builder.engine.httpread import CheckedResponse
from builder.errors import EngineError

_LARGEST = 64 << 20
"""Bytes of one answer: the output of a container has 32 MB at most."""
_LONGEST = 1 << 20
"""Bytes of one message about progress."""
_PIECE = 1 << 16
_SECONDS = 300.0
"""For an answer, besides those that its first byte may take."""

# The daemon may be that of another machine. Docker's SDK has no option for this.
UnixHTTPConnection.response_class = CheckedResponse


def bound(api: Any) -> None:
    """Let a client of the SDK read answers within bounds."""
    api.hooks["response"].append(bounded)
    # A small answer that is compressed may unpack to gigabytes.
    api.headers["Accept-Encoding"] = "identity"


def bounded(response: requests.Response, *_: Any, **options: Any) -> None:
    """A hook of requests: reads an answer that is no stream, within a bound. Raises DockerException."""
    if options.get("stream") and response.status_code < 400:
        return
    data = bytearray()
    # The answer to `wait` takes as long as its caller allows.
    end = time.monotonic() + float(options.get("timeout") or 0.0) + _SECONDS
    while piece := response.raw.read1(_PIECE, decode_content=False):
        data += piece
        if len(data) > _LARGEST:
            response.close()
            raise docker.errors.DockerException(f"its answer is longer than {_LARGEST >> 20} MB")
        if time.monotonic() > end:
            response.close()
            raise requests.Timeout("its answer does not end")
    # As requests itself does for the whole of an answer.
    read: Any = response
    read._content, read._content_consumed = bytes(data), True


def agreed(version: Any) -> str:
    """The version of the API that a daemon names, as "1.47". Raises DockerException."""
    if not isinstance(version, str) or not re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,4}", version):
        raise docker.errors.DockerException("it names no version of its API")
    return version


def follow(client: docker.DockerClient, path: str, doing: str, **options: Any) -> None:
    """POST to a path and wait for the last message of the answer. doing: the request, for messages.

    Raises EngineError for a message that is an error, and as the SDK and requests do.
    """
    api: Any = client.api
    response = api._post(api._url(path), stream=True, **options)
    api._raise_for_status(response)
    with contextlib.closing(response):
        for item in _messages(response):
            if problem := item.get("error") or item.get("message"):
                raise refused(doing, str(problem))


def refused(doing: str, reason: str) -> EngineError:
    """The error for a request that the daemon refuses."""
    # One line: the daemon may be that of another machine.
    cause = " ".join(reason.split())[-500:] or "the daemon gives no reason"
    return EngineError(f"docker could not {doing}", id="docker-refused", cause=cause)


def _messages(response: requests.Response) -> Iterator[dict[str, Any]]:
    """The messages of a stream about progress: JSON objects, one a line. Raises DockerException."""
    pending = b""
    while piece := response.raw.read1(_PIECE, decode_content=False):
        *lines, pending = (pending + piece).split(b"\n")
        yield from map(_message, filter(bytes.strip, lines))
        if len(pending) > _LONGEST:
            raise docker.errors.DockerException(f"its message is longer than {_LONGEST >> 20} MB")
    if pending.strip():
        yield _message(pending)


def _message(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise docker.errors.DockerException("its message is no JSON object")
    return found
