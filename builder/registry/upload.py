"""Writes to a registry: blobs, mounted from another repository or uploaded in one request, and manifests."""

from __future__ import annotations

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
from builder.registry.transport import next_url

if TYPE_CHECKING:
    import requests


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
    """Stream a blob of `size` bytes in one PUT; start again with new `chunks` when the connection breaks.

    Raises PinError when the chunks do not match `digest`, NetworkError when the registry refuses them.
    """
    endpoint = session.config.origin(target.registry)
    budget = session.transport.retry_policy.budget()
    what = f"{target.repository}@{digest}"
    while True:
        url = _start(session, endpoint, target, what)
        try:
            response = session.send(
                endpoint,
                "PUT",
                f"{url}{'&' if '?' in url else '?'}digest={quote(digest)}",
                push(target.repository),
                headers={"Content-Type": "application/octet-stream"},
                body=lambda: _body(verified(chunks(), digest, what, size), size),
                once=True,
            )
        except OtherSourceError:
            continue  # the chunks then come from another endpoint
        except TransientError as error:
            if not budget.again(error.pause):
                raise
            continue
        if response.status_code == 201:
            response.close()
            if response.headers.get("Docker-Content-Digest", digest) != digest:
                raise PinError(
                    "the registry stored another blob",
                    id="registry-stored-other-blob",
                    where=f"{endpoint.host}: {what}",
                )
            return
        # 401: the token expired between POST and PUT. 404, 416: the registry dropped the upload.
        if response.status_code not in (401, 404, 416) or not budget.again():
            raise _refused(session, response, endpoint, what)
        response.close()


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
    response = session.send(
        endpoint, "PUT", path, push(target.repository), headers={"Content-Type": media_type}, body=data
    )
    if response.status_code not in (200, 201):
        error = session.error(response, endpoint, str(target))
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
