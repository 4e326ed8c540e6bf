"""Lists the tags of a repository, page by page."""

from __future__ import annotations

import json
import re
from typing import Any

from builder.errors import NetworkError
from builder.model.reference import Reference
from builder.oci.manifest import MANIFEST_LIMIT
from builder.registry.config import Endpoint
from builder.registry.session import RegistrySession, pull
from builder.registry.transport import next_url, same_origin

_PAGES = 500


def list_tags(session: RegistrySession, endpoint: Endpoint, ref: Reference) -> list[str]:
    """The tags of a repository, as the registry orders them. Raises NetworkError."""
    repository = endpoint.repository(ref.repository)
    target = f"{repository}/tags/list?n=1000"
    found: dict[str, None] = {}
    for _ in range(_PAGES):
        what = f"tags of {ref.repository}"
        response, data = session.get(endpoint, target, pull(repository), what, limit=MANIFEST_LIMIT)
        before = len(found)
        found.update(dict.fromkeys(_parse(data, endpoint)))
        link = re.match(r'\s*<([^>]+)>\s*;\s*rel="?next"?', response.headers.get("Link", ""))
        if link is None or len(found) == before:
            return list(found)
        target = next_url(response.url, link[1])
        if not same_origin(target, endpoint.base):
            break
    raise NetworkError("the list of tags has no end", id="registry-tags-endless", where=endpoint.host)


def _parse(data: bytes, endpoint: Endpoint) -> list[str]:
    try:
        answer: Any = json.loads(data)
        tags = answer["tags"] or []
        if isinstance(tags, list) and all(isinstance(tag, str) for tag in tags):
            return tags
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise NetworkError("the registry's list of tags is malformed", id="registry-tags-malformed", where=endpoint.host)
