"""Lists the tags of a repository, and what is attached to an image, page by page; deletes manifests."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from builder.digest import Digest
from builder.errors import NetworkError, PinError
from builder.jsontext import parse_json
from builder.model.reference import Reference
from builder.oci.manifest import MANIFEST_LIMIT, parse_manifest
from builder.registry.config import Endpoint
from builder.registry.session import RegistrySession, pull
from builder.registry.transport import next_url, same_origin

_PAGES = 500
_LONGEST, _SECONDS = 16 << 20, 600.0
"""Bytes and seconds of all pages of a list."""
_MOST_TAGS = 200_000
"""Tags on one page."""


def list_tags(session: RegistrySession, endpoint: Endpoint, ref: Reference) -> list[str]:
    """The tags of a repository, as the registry orders them. Raises NetworkError."""
    found: dict[str, None] = {}
    for data in _pages(session, endpoint, ref, "tags/list?n=1000", "tags"):
        before = len(found)
        found.update(dict.fromkeys(_tags(data, endpoint)))
        if len(found) == before:
            break
    return list(found)


def list_referrers(
    session: RegistrySession, endpoint: Endpoint, ref: Reference, digest: Digest, kind: str
) -> list[dict[str, Any]]:
    """The descriptors of artifacts of a type whose subject is an image, as the registry lists them.

    Empty where the registry has no such list. Raises NetworkError.
    """
    target = f"referrers/{digest}?artifactType={quote(kind, safe='')}"
    found: dict[str, dict[str, Any]] = {}
    try:
        for data in _pages(session, endpoint, ref, target, "referrers"):
            before = len(found)
            index = parse_manifest(data, where=f"{endpoint.host}: referrers of {digest}")
            # A registry may ignore the filter.
            found.update((item["digest"], item) for item in index.json.get("manifests") or ())
            if len(found) == before:
                break
    except PinError:
        return []
    return [item for item in found.values() if item.get("artifactType") == kind]


def delete_manifest(session: RegistrySession, target: Reference, digest: Digest) -> None:
    """Delete a manifest. Raises NetworkError when the registry refuses."""
    endpoint = session.config.origin(target.registry)
    path, scopes = f"{target.repository}/manifests/{digest}", (f"repository:{target.repository}:pull,delete",)
    response = session.send(endpoint, "DELETE", path, scopes)
    if response.status_code == 405:
        response.close()
        raise NetworkError(
            "the registry deletes nothing",
            id="registry-delete-refused",
            where=f"{endpoint.host}: {target.repository}@{digest}",
            next="let its owner enable deletion, for docker-registry with storage.delete.enabled",
        )
    if response.status_code not in (200, 202, 404):
        raise session.error(response, endpoint, f"{target.repository}@{digest}")
    response.close()


def _pages(session: RegistrySession, endpoint: Endpoint, ref: Reference, path: str, noun: str) -> Iterator[bytes]:
    repository = endpoint.repository(ref.repository)
    target, what = f"{repository}/{path}", f"{noun} of {ref.repository}"
    left, end = _LONGEST, time.monotonic() + _SECONDS
    for _ in range(_PAGES):
        response, data = session.get(endpoint, target, pull(repository), what, limit=MANIFEST_LIMIT)
        if (left := left - len(data)) < 0 or time.monotonic() > end:
            break
        yield data
        link = re.match(r'\s*<([^>]+)>\s*;\s*rel="?next"?', response.headers.get("Link", ""))
        if link is None:
            return
        target = next_url(response.url, link[1])
        if not same_origin(target, endpoint.base):
            break
    raise NetworkError(f"the list of {noun} has no end", id="registry-list-endless", where=endpoint.host)


def _tags(data: bytes, endpoint: Endpoint) -> list[str]:
    try:
        answer: Any = parse_json(data, _MOST_TAGS)
        tags = answer["tags"] or []
        if isinstance(tags, list) and all(isinstance(tag, str) for tag in tags):
            return tags
    except (ValueError, KeyError, TypeError):
        pass
    raise NetworkError("the registry's list of tags is malformed", id="registry-tags-malformed", where=endpoint.host)
