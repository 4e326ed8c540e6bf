"""The registry client: images and blobs by reference, verified, from mirrors or the registry itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from builder.digest import Digest, is_digest
from builder.errors import BuilderError, NetworkError, OtherSourceError, PinError, UsageError
from builder.model.reference import Reference
from builder.oci.manifest import (
    INDEXES,
    MANIFEST_LIMIT,
    MANIFESTS,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    check_platform,
    choose_platform,
    parse_manifest,
    verified,
)
from builder.registry.auth import Credentials
from builder.registry.config import Endpoint, RegistriesConfig
from builder.registry.errors import MismatchError, TransientError, mismatch
from builder.registry.listing import delete_manifest, list_referrers, list_tags
from builder.registry.session import RegistrySession, pull
from builder.registry.transport import stream, with_deadline
from builder.registry.upload import mount_blob, put_manifest, upload_blob
from builder.retry import RetryPolicy

if TYPE_CHECKING:
    import requests

_NO_HEAD = (400, 405, 501)
"""Not every registry answers HEAD."""
_ACCEPT = ", ".join(MANIFESTS + INDEXES)
_Result = TypeVar("_Result")


class Registry:
    """A client of all registries. Thread-safe. Reads try mirrors first; writes and `has_blob` use the registry itself.

    Every method raises NetworkError when a registry does not answer, refuses, or sends a malformed answer, and PinError
    when the content is missing or does not match its digest.
    """

    def __init__(
        self,
        *,
        config: RegistriesConfig | None = None,
        credentials: Credentials | None = None,
        retry_policy: RetryPolicy | None = None,
    ) -> None:
        self._session = RegistrySession(
            config if config is not None else RegistriesConfig.load(),
            credentials if credentials is not None else Credentials.default(),
            retry_policy or RetryPolicy(),
        )
        self._unresponsive: set[Endpoint] = set()
        self._wrong: dict[tuple[str, Digest], MismatchError] = {}
        """What a mirror served in place of a blob, by its base URL and the digest."""

    def manifest(self, ref: Reference, *, own: bool = False) -> Manifest:
        """The manifest or index at `ref`: by its digest if it has one, else by its tag. own: of the registry itself."""
        origin = self._session.config.origin(ref.registry)
        return self._manifest(origin, ref) if own else self._read(ref, lambda endpoint: self._manifest(endpoint, ref))

    def check_manifest(self, ref: Reference) -> None:
        """Raise unless the manifest or index with the digest of `ref` exists; it is not read."""
        assert ref.digest is not None
        self._read(ref, lambda endpoint: self._check_manifest(endpoint, ref))

    def platform_manifest(self, ref: Reference, platform: str = "linux/arm64") -> tuple[Manifest, Digest | None]:
        """The image at `ref` for one platform, and the digest of the index that lists it (None: no index).

        Raises PinError also when the config of the image names another platform.
        """
        found, index = self.manifest(ref), None
        if found.is_index:
            index = found.digest
            ref = ref.at(choose_platform(found, platform, str(ref)))
            found = self.manifest(ref)
            if found.is_index:
                raise PinError("the index lists another index instead of an image", id="index-nested", where=str(ref))
        check_platform(self.config(ref, found), platform, str(ref))
        return found, index

    def config(self, ref: Reference, manifest: Manifest) -> bytes:
        """The config that an image's manifest names."""
        if manifest.is_index:
            raise UsageError("an index has no config", id="index-has-no-config", where=str(ref))
        if manifest.config.size > MANIFEST_LIMIT:
            what = f"a config of {manifest.config.size} bytes"
            raise NetworkError(
                what, id="config-too-large", where=str(ref), cause=f"the limit is {MANIFEST_LIMIT} bytes"
            )
        return self.small_blob(ref, manifest.config)

    def has_blob(self, ref: Reference, digest: Digest) -> bool:
        """Whether the registry itself has a blob in this repository."""
        endpoint = self._session.config.origin(ref.registry)
        path = f"{ref.repository}/blobs/{digest}"
        response = self._session.send(endpoint, "HEAD", path, pull(ref.repository))
        if response.status_code in _NO_HEAD:
            response.close()
            response = self._session.send(endpoint, "GET", path, pull(ref.repository), headers={"Range": "bytes=0-0"})
        if response.status_code not in (200, 206, 404, 416):  # 416: an empty blob has no first byte
            raise self._session.error(response, endpoint, f"{ref.repository}@{digest}")
        response.close()
        return response.status_code != 404

    def has_manifest(self, ref: Reference, digest: Digest) -> bool:
        """Whether the registry itself has a manifest in this repository."""
        place = Reference(ref.registry, ref.repository, digest=digest)
        try:
            self._check_manifest(self._session.config.origin(ref.registry), place)
        except PinError:
            return False
        return True

    def blob(self, ref: Reference, digest: Digest, size: int | None = None) -> Iterator[bytes]:
        """A blob's chunks (up to 1 MiB); the last one comes only when all of them hash to `digest`.

        A broken connection is resumed. size: in bytes, if known; the limit of what is read. Raises OtherSourceError
        when a mirror's bytes are wrong: the blob can then be read again, from another endpoint.
        """

        def find(endpoint: Endpoint) -> tuple[Endpoint, requests.Response]:
            if wrong := self._wrong.get((endpoint.base, digest)):
                raise wrong
            return replace(endpoint, once=False), self._open(endpoint, ref, digest)

        endpoint, response = self._read(ref, find)
        chunks = self._blob(endpoint, ref, digest, size, response)
        is_mirror = endpoint.base != self._session.config.origin(ref.registry).base
        return self._of_mirror(chunks, endpoint, digest) if is_mirror else chunks

    def _of_mirror(self, chunks: Iterator[bytes], endpoint: Endpoint, digest: Digest) -> Iterator[bytes]:
        try:
            yield from chunks
        except MismatchError as error:
            self._wrong[endpoint.base, digest] = error
            raise OtherSourceError(error.what, id=error.id, where=error.where, cause=error.cause) from None

    def mount(self, target: Reference, digest: Digest, source_repository: str) -> bool:
        """Mount a blob from another repository of the same registry. False: the blob must be uploaded."""
        return mount_blob(self._session, target, digest, source_repository)

    def upload(self, target: Reference, digest: Digest, size: int, chunks: Callable[[], Iterator[bytes]]) -> None:
        """Upload a blob of `size` bytes. chunks: called for every attempt; returns the same bytes each time."""
        upload_blob(self._session, target, digest, size, chunks)

    def put_manifest(self, target: Reference, data: bytes, media_type: str) -> Digest:
        """Write a manifest or index under the tag of `target`, else by its digest; returns the digest."""
        return put_manifest(self._session, target, data, media_type)[0]

    def put_artifact(self, target: Reference, data: bytes) -> tuple[Digest, bool]:
        """Write a manifest with a subject by its digest; returns it, and whether the registry supports referrers."""
        digest, headers = put_manifest(self._session, target, data, OCI_MANIFEST)
        return digest, "OCI-Subject" in headers

    def delete(self, target: Reference, digest: Digest) -> None:
        """Delete a manifest from the repository; one that is missing is no error."""
        delete_manifest(self._session, target, digest)

    def tags(self, ref: Reference) -> list[str]:
        """The tags of a repository, as the registry orders them."""
        return self._read(ref, lambda endpoint: list_tags(self._session, endpoint, ref))

    def referrers(self, ref: Reference, digest: Digest, kind: str) -> list[dict[str, Any]]:
        """The descriptors of artifacts of a type that the registry itself lists for an image; mirrors have no list."""
        return list_referrers(self._session, self._session.config.origin(ref.registry), ref, digest, kind)

    def small_blob(self, ref: Reference, descriptor: Descriptor) -> bytes:
        """A blob in one piece; its caller has checked that the size is bearable."""

        def read(endpoint: Endpoint) -> bytes:
            response = self._open(endpoint, ref, descriptor.digest)
            chunks = self._blob(endpoint, ref, descriptor.digest, descriptor.size, response)
            return b"".join(with_deadline(chunks, self._session.transport.retry_policy.whole, endpoint.host))

        return self._read(ref, read)

    def _read(self, ref: Reference, attempt: Callable[[Endpoint], _Result]) -> _Result:
        """Try mirrors, then the registry, each once; with retries only when none of them answers.

        A digest mismatch outranks other errors; else the error is the registry's, with the reasons of its mirrors.
        """
        *mirrors, origin = self._session.config.endpoints(ref.registry)
        # An endpoint that did not answer is tried last from then on.
        todo = sorted((*mirrors, origin), key=self._unresponsive.__contains__)
        failed: dict[Endpoint, BuilderError] = {}
        for once in (True, False) if mirrors else (False,):
            for endpoint in todo:
                try:
                    result = attempt(replace(endpoint, once=once))
                except (NetworkError, PinError) as error:
                    failed[endpoint] = error
                    if isinstance(error, TransientError):
                        self._unresponsive.add(endpoint)
                else:
                    self._unresponsive.discard(endpoint)
                    return result
            todo = [endpoint for endpoint in todo if isinstance(failed[endpoint], TransientError)]
        raise _read_error(failed, origin)

    def _manifest(self, endpoint: Endpoint, ref: Reference) -> Manifest:
        repository = endpoint.repository(ref.repository)
        path = f"{repository}/manifests/{ref.selector}"
        scopes = pull(repository)
        response, data = self._session.get(endpoint, path, scopes, str(ref), accept=_ACCEPT, limit=MANIFEST_LIMIT)
        where = f"{ref} from {endpoint.host}"
        if ref.digest is not None and Digest.of(data) != ref.digest:
            raise mismatch(
                f"got {Digest.of(data)}, expected {ref.digest}",
                where=where,
                cause="the registry, a mirror or a proxy served another manifest than the pinned one",
            )
        header = response.headers.get("Docker-Content-Digest")
        if header is not None and not _is_digest_of(data, header):
            raise mismatch("the manifest does not match the digest in the registry's answer", where=where)
        return parse_manifest(data, response.headers.get("Content-Type", ""), where)

    def _check_manifest(self, endpoint: Endpoint, ref: Reference) -> None:
        repository = endpoint.repository(ref.repository)
        path = f"{repository}/manifests/{ref.digest}"
        response = self._session.send(endpoint, "HEAD", path, pull(repository), headers={"Accept": _ACCEPT})
        if response.status_code in _NO_HEAD:
            response.close()
            self._manifest(endpoint, ref)
            return
        if response.status_code != 200:
            raise self._session.error(response, endpoint, str(ref))
        response.close()
        header = response.headers.get("Docker-Content-Digest", "")
        if is_digest(header) and header != ref.digest:
            raise mismatch(
                "the registry has another manifest under this digest",
                where=f"{ref} from {endpoint.host}",
                cause=f"it answered with the digest {header}",
            )

    def _open(self, endpoint: Endpoint, ref: Reference, digest: Digest, start: int = 0) -> requests.Response:
        repository = endpoint.repository(ref.repository)
        headers = {"Range": f"bytes={start}-"} if start else {}
        path = f"{repository}/blobs/{digest}"
        response = self._session.send(endpoint, "GET", path, pull(repository), headers=headers)
        if response.status_code == 200:
            return response
        if response.status_code == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            return response
        raise self._session.error(response, endpoint, f"{ref.repository}@{digest}")

    def _blob(
        self, endpoint: Endpoint, ref: Reference, digest: Digest, size: int | None, response: requests.Response
    ) -> Iterator[bytes]:
        where = f"{ref.registry}/{ref.repository} from {endpoint.host}"
        try:
            yield from verified(self._chunks(endpoint, ref, digest, response), digest, where, size)
        except PinError as error:
            raise mismatch(error.what, where=error.where, cause=error.cause) from None

    def _chunks(
        self, endpoint: Endpoint, ref: Reference, digest: Digest, response: requests.Response
    ) -> Iterator[bytes]:
        budget, position = self._session.transport.retry_policy.budget(), 0
        while True:
            # A registry without support for ranges starts again: skip the bytes that were yielded.
            skip = position if response.status_code == 200 else 0
            try:
                for chunk in stream(response):
                    rest = chunk[skip:]
                    skip -= len(chunk) - len(rest)
                    position += len(rest)
                    if rest:
                        yield rest
                return
            except TransientError:
                if not budget.again():
                    raise
            response = self._open(endpoint, ref, digest, position)


def _read_error(failed: Mapping[Endpoint, BuilderError], origin: Endpoint) -> BuilderError:
    """The error of a read that failed everywhere: a mismatch first, else the error of the registry."""
    for error in failed.values():
        if isinstance(error, MismatchError):
            return error
    last = failed[origin]
    of_mirrors = [f"its mirror {place.host}: {error.what}" for place, error in failed.items() if place != origin]
    causes = "; ".join(text for text in (last.cause, *of_mirrors) if text)
    return last.replaced(cause=causes)


def _is_digest_of(data: bytes, digest: str) -> bool:
    algorithm, _, value = digest.partition(":")
    return algorithm in ("sha256", "sha384", "sha512") and hashlib.new(algorithm, data).hexdigest() == value
