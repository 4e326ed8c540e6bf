"""Writes to a registry: blobs, mounted from another repository or uploaded, and manifests."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from builder.digest import Digest
from builder.errors import BuilderError, NetworkError, OtherSourceError, PinError
from builder.model.reference import Reference
from builder.oci.manifest import verified
from builder.registry.config import Endpoint
from builder.registry.errors import TransientError
from builder.registry.session import RegistrySession, pull, push
from builder.registry.transport import Body, next_url
from builder.registry.unfinished import Remembered, remembered

if TYPE_CHECKING:
    import requests

RESUMABLE = 16 << 20
"""Bytes from which a blob can go on where it stopped; a smaller one is sent in one request."""
_PROGRESS = 1 << 20
"""Bytes; an upload that has grown by so many has all attempts again."""
_RANGE = re.compile(r"(?:bytes=)?0-([0-9]{1,18})")


def mount_blob(session: RegistrySession, target: Reference, digest: Digest, source_repository: str) -> bool:
    """Mount a blob from another repository of the registry of `target`; False when the registry does not."""
    endpoint = session.config.origin(target.registry)
    path = f"{target.repository}/blobs/uploads/?mount={quote(digest)}&from={quote(source_repository, safe='')}"
    try:
        response = session.send(
            endpoint,
            "POST",
            path,
            (*push(target.repository), *pull(source_repository)),
            headers={"Content-Length": "0"},
        )
    except TransientError:
        raise
    except NetworkError:
        return False  # no access to the source repository: an upload may still work
    response.close()
    if response.status_code == 202 and (location := response.headers.get("Location")):
        _cancel(session, endpoint, target, next_url(response.url, location))
    return response.status_code == 201


def upload_blob(
    session: RegistrySession, target: Reference, digest: Digest, size: int, chunks: Callable[[], Iterator[bytes]]
) -> None:
    """Upload a blob of `size` bytes. chunks: called for every attempt.

    A large blob goes on where it stopped, also in a later process, if the registry has kept what arrived; else it
    starts again. Raises PinError when the chunks do not match `digest`, NetworkError when the registry refuses them.
    """
    endpoint = session.config.origin(target.registry)
    name = f"{endpoint.base}/{target.repository}@{digest}"
    with remembered(name) if size >= RESUMABLE else contextlib.nullcontext(Remembered()) as place:
        _Upload(session, endpoint, target, digest, size, chunks, place).run()


class _Upload:
    """One blob on its way. url: of the upload, None before it is started. sent: bytes that the registry has of it."""

    def __init__(
        self,
        session: RegistrySession,
        endpoint: Endpoint,
        target: Reference,
        digest: Digest,
        size: int,
        chunks: Callable[[], Iterator[bytes]],
        place: Remembered,
    ) -> None:
        self._session, self._endpoint, self._target = session, endpoint, target
        self._digest, self._size, self._chunks = digest, size, chunks
        self._place = place
        self._what = f"{target.repository}@{digest}"
        self._url = place.url
        self._sent = self._most = 0
        self._in_parts = size >= RESUMABLE
        self._is_known = self._url is None
        """Whether `sent` is what the registry has."""

    def run(self) -> None:
        policy = self._session.transport.retry_policy
        budget = policy.budget()
        while True:
            try:
                if not self._is_known:
                    self._ask()
                    # More than ever: a registry may forget an upload again and again.
                    if self._sent >= self._most + _PROGRESS:
                        budget, self._most = policy.budget(), self._sent
                resumed = self._sent > 0
                response = self._send()
            except OtherSourceError:
                self._restart()  # the chunks then come from another endpoint
                continue
            except TransientError as error:
                if not budget.again(error.pause):
                    raise
                self._is_known = not self._in_parts or self._url is None
                if not self._in_parts:
                    self._restart()
                continue
            if response.status_code == 201:
                self._finish(response)
                return
            if self._in_parts and response.status_code in (405, 501):
                self._in_parts = False  # a registry that takes a blob in one request only
            # 401: the token expired meanwhile. 404, 416: the registry dropped the upload, or has other bytes of it; so
            # it has when it refuses the whole of what was sent in parts.
            elif not (response.status_code in (401, 404, 416) or resumed) or not budget.again():
                self._place.forget()
                raise _refused(self._session, response, self._endpoint, self._what)
            response.close()
            self._restart()

    def _restart(self) -> None:
        self._url, self._sent, self._is_known = None, 0, True
        self._place.forget()

    def _ask(self) -> None:
        """Ask the registry how much of the upload it has; if it does not say, start again."""
        assert self._url is not None
        try:
            response = self._session.send(self._endpoint, "GET", self._url, push(self._target.repository), once=True)
        except TransientError:
            raise
        except NetworkError:
            self._restart()
            return
        response.close()
        found = _RANGE.fullmatch(response.headers.get("Range", ""))
        if response.status_code != 204 or found is None or int(found[1]) >= self._size:
            self._restart()
            return
        # An empty upload is 0-0, too.
        self._sent, self._is_known = int(found[1]) + 1 if int(found[1]) else 0, True
        self._follow(response)

    def _send(self) -> requests.Response:
        """Send what is left. Returns the answer that ends the upload, or the first one that is not as expected."""
        if self._url is None:
            self._url = _start(self._session, self._endpoint, self._target, self._what)
        if not self._in_parts:
            return self._put(lambda: _body(self._rest(), self._size))
        self._place.keep(self._url)
        headers = {"Content-Type": "application/octet-stream"}
        if self._sent:
            headers["Content-Range"] = f"{self._sent}-{self._size - 1}"
        if self._sent < self._size:
            response = self._session.send(
                self._endpoint,
                "PATCH",
                self._url,
                push(self._target.repository),
                headers=headers,
                body=lambda: _body(self._rest(), self._size - self._sent),
                once=True,
            )
            if response.status_code != 202:
                return response
            response.close()
            self._follow(response)
        return self._put(b"")

    def _put(self, body: Body) -> requests.Response:
        assert self._url is not None
        return self._session.send(
            self._endpoint,
            "PUT",
            f"{self._url}{'&' if '?' in self._url else '?'}digest={quote(self._digest)}",
            push(self._target.repository),
            headers={"Content-Type": "application/octet-stream", **({"Content-Length": "0"} if body == b"" else {})},
            body=body,
            once=True,
        )

    def _rest(self) -> Iterator[bytes]:
        """The bytes after those that the registry has. All of them are hashed."""
        skip = self._sent
        for chunk in verified(self._chunks(), self._digest, self._what, self._size):
            if rest := chunk[skip:]:
                yield rest
            skip = max(0, skip - len(chunk))

    def _follow(self, response: requests.Response) -> None:
        if location := response.headers.get("Location"):
            self._url = next_url(response.url, location)
            self._place.keep(self._url)

    def _finish(self, response: requests.Response) -> None:
        response.close()
        self._place.forget()
        if response.headers.get("Docker-Content-Digest", self._digest) != self._digest:
            raise PinError(
                "the registry stored another blob",
                id="registry-stored-other-blob",
                where=f"{self._endpoint.host}: {self._what}",
            )


def put_manifest(
    session: RegistrySession, target: Reference, data: bytes, media_type: str
) -> tuple[Digest, Mapping[str, str]]:
    """Write a manifest under the tag of `target`, else by its digest; returns the digest and the answer's headers.

    Raises PinError when the digest is not that of `target`, or the registry stored another manifest; NetworkError when
    the registry refuses.
    """
    digest = Digest.of(data)
    if target.digest not in (None, digest):
        raise PinError(f"got {digest}, expected {target.digest}", id="manifest-digest-mismatch", where=str(target))
    endpoint = session.config.origin(target.registry)
    path = f"{target.repository}/manifests/{target.tag or digest}"
    budget = session.transport.retry_policy.budget()
    headers = {"Content-Type": media_type}
    while True:
        response = session.send(endpoint, "PUT", path, push(target.repository), headers=headers, body=data)
        if response.status_code in (200, 201):
            break
        error = session.error(response, endpoint, str(target))
        # While another client writes the same blob, docker-registry loses sight of it for a moment.
        if "MANIFEST_BLOB_UNKNOWN" not in error.cause or not budget.again():
            raise NetworkError(error.what, id=error.id, where=error.where, cause=error.cause, next=error.next)
    response.close()
    stored = response.headers.get("Docker-Content-Digest", digest)
    if stored != digest:
        raise PinError(
            "the registry stored another manifest",
            id="registry-stored-other-manifest",
            where=str(target),
            cause=f"it answered with the digest {ascii(stored)[1:-1][:100]}, not {digest}",
        )
    return digest, response.headers


def _start(session: RegistrySession, endpoint: Endpoint, target: Reference, what: str) -> str:
    response = session.send(
        endpoint,
        "POST",
        f"{target.repository}/blobs/uploads/",
        push(target.repository),
        headers={"Content-Length": "0"},
    )
    location = response.headers.get("Location")
    if response.status_code != 202 or not location:
        raise _refused(session, response, endpoint, what)
    response.close()
    return next_url(response.url, location)


def _body(chunks: Iterator[bytes], size: int) -> _Stream | bytes:
    # An empty stream would be sent chunked.
    return _Stream(chunks, size) if size else b"".join(chunks)


class _Stream:
    """An iterator with a length: makes requests send Content-Length, which some registries require."""

    def __init__(self, chunks: Iterator[bytes], size: int) -> None:
        self._chunks = chunks
        self.len = size

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks


def _refused(session: RegistrySession, response: requests.Response, endpoint: Endpoint, what: str) -> BuilderError:
    error = session.error(response, endpoint, what)
    # For a pull, 404 means an outdated pin; for a push, a registry that refuses uploads.
    if isinstance(error, PinError):
        return NetworkError(
            "the registry accepts no upload here", id="registry-upload-refused", where=error.where, cause=error.cause
        )
    return error


def _cancel(session: RegistrySession, endpoint: Endpoint, target: Reference, url: str) -> None:
    try:
        session.send(endpoint, "DELETE", url, push(target.repository), once=True).close()
    except NetworkError:
        return  # the registry removes unfinished uploads itself
