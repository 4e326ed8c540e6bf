"""Reads the answers of a docker daemon within bounds: with `deploy` it is one of another machine."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import docker
import docker.errors
import requests
from docker.transport.unixconn import UnixHTTPConnection

from builder.engine.connection import Adapter
from builder.engine.httpread import CheckedResponse
from builder.errors import EngineError
from builder.events import Event, Listener, State

_LARGEST, _LOG = 8 << 20, 64 << 20
"""Bytes of one answer, which may take thirty times as many when it is parsed; and of a container's output, which has 32
MB at most."""
_LONGEST = 1 << 20
"""Bytes of one message about progress."""
_PIECE = 1 << 16
_NUMBERS = ("current", "total")
_SECONDS = 300.0
"""For an answer, besides those that its first byte may take."""

_STATES: dict[str, State] = {
    "Pulling fs layer": "waiting",
    "Waiting": "waiting",
    "Downloading": "fetching",
    "Verifying Checksum": "unpacking",
    "Download complete": "unpacking",
    "Extracting": "unpacking",
    "Pull complete": "done",
    "Already exists": "cached",
}
"""What a daemon says of a layer that it pulls."""

# The daemon may be that of another machine. Docker's SDK has no option for this.
UnixHTTPConnection.response_class = CheckedResponse


def bound(api: Any) -> None:
    """Let a client of the SDK read answers within bounds, and send no login of ~/.netrc."""
    api.hooks["response"].append(bounded)
    api.auth = lambda request: request
    for scheme in {"http://", "https://"} & api.adapters.keys():
        api.mount(scheme, Adapter())  # of a daemon behind TCP
    # A small answer that is compressed may unpack to gigabytes.
    api.headers["Accept-Encoding"] = "identity"


def bounded(response: requests.Response, *_: Any, **options: Any) -> None:
    """A hook of requests: reads an answer that is no stream, within a bound. Raises DockerException.

    A redirect is refused: requests would read all of its body, and look into ~/.netrc again.
    """
    if response.is_redirect:
        response.close()
        raise docker.errors.DockerException("it redirects to another address")
    if options.get("stream") and response.status_code < 400:
        return
    data = bytearray()
    most = _LOG if urlsplit(response.url).path.endswith("/logs") else _LARGEST
    # The answer to `wait` takes as long as its caller allows.
    end = time.monotonic() + float(options.get("timeout") or 0.0) + _SECONDS
    while piece := response.raw.read1(_PIECE, decode_content=False):
        data += piece
        if len(data) > most:
            response.close()
            raise docker.errors.DockerException(f"its answer is longer than {most >> 20} MB")
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


def settings(found: Any) -> dict[str, Any]:
    """What `docker info` shows. Raises TypeError and ValueError for a value of another form than docker's."""
    known = dict(found)
    for name, kind in (("Runtimes", dict), ("DiscoveredDevices", list), ("DriverStatus", list)):
        if not isinstance(known.get(name) or kind(), kind):
            raise TypeError(name)
    return known


def follow(
    client: docker.DockerClient, path: str, doing: str, listener: Listener | None = None, **options: Any
) -> None:
    """POST to a path and wait for the last message of the answer. doing: the request, for messages.

    listener: gets the progress of each layer, named by the first 12 digits of its digest. Raises EngineError for a
    message that is an error, and as the SDK and requests do.
    """
    api: Any = client.api
    response = api._post(api._url(path), stream=True, **options)
    api._raise_for_status(response)
    with contextlib.closing(response):
        for item in _messages(response):
            if problem := item.get("error") or item.get("message"):
                raise refused(doing, str(problem))
            if listener is not None and (event := _progress(item)) is not None:
                listener(event)


def _progress(item: dict[str, Any]) -> Event | None:
    """What a message says of a layer, if it says anything."""
    layer, status, detail = item.get("id"), item.get("status"), item.get("progressDetail")
    if not (isinstance(layer, str) and isinstance(status, str) and re.fullmatch(r"[0-9a-f]{12}", layer)):
        return None
    if (state := _STATES.get(status)) is None:
        return None
    numbers = detail if isinstance(detail, dict) and "units" not in detail else {}
    done, total = (each if type(each) is int and 0 <= each < 1 << 50 else 0 for each in map(numbers.get, _NUMBERS))
    return Event(layer, state, done, total)


def refused(doing: str, reason: str) -> EngineError:
    """The error for a request that the daemon refuses."""
    cause = shown(reason) or "the daemon gives no reason"
    return EngineError(f"docker could not {doing}", id="docker-refused", cause=cause)


def shown(reason: str) -> str:
    """What a daemon says, as one short line: it may be that of another machine."""
    return " ".join(reason.split())[-500:]


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


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and all its causes. urllib3 and requests keep the cause among the arguments of an exception."""
    seen: list[BaseException] = []
    rest: list[object] = [error]
    while rest:
        part = rest.pop(0)
        if isinstance(part, BaseException) and not any(part is known for known in seen):
            seen.append(part)
            yield part
            rest += [*part.args, part.__cause__, part.__context__]
