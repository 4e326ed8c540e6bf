"""Artifacts attached to an image in a registry, as the OCI distribution specification 1.1 does it.

An artifact is a manifest whose `subject` is the image. Registries that know this list it under the image's referrers;
for the others the client keeps an index under the tag `sha256-HEX` (the specification's referrers tag schema).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from builder.digest import Digest
from builder.errors import PinError
from builder.model.canonical import canonical
from builder.model.reference import Reference
from builder.oci.manifest import OCI_INDEX, OCI_MANIFEST
from builder.registry.client import Registry

EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
_EMPTY = b"{}"


def artifact(subject: Mapping[str, Any], payload: bytes, kind: str, annotations: Mapping[str, str]) -> bytes:
    """The manifest of an artifact with one blob. subject: the image's descriptor; kind: the artifact's and the blob's
    type."""
    return canonical(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": kind,
            "config": {"mediaType": EMPTY_TYPE, "digest": Digest.of(_EMPTY), "size": len(_EMPTY)},
            "layers": [{"mediaType": kind, "digest": Digest.of(payload), "size": len(payload)}],
            "subject": dict(subject),
            "annotations": dict(annotations),
        }
    )


def attach(
    client: Registry,
    target: Reference,
    subject: Mapping[str, Any],
    payload: bytes,
    kind: str,
    annotations: Mapping[str, str] | None = None,
) -> Digest:
    """Attach one blob to an image that the repository of `target` has; returns the artifact's digest.

    subject: the image's descriptor (mediaType, digest, size). Attaching the same again changes nothing.
    Raises NetworkError or PinError.
    """
    manifest = artifact(subject, payload, kind, annotations or {})
    place = Reference(target.registry, target.repository)
    for blob in (_EMPTY, payload):
        if not client.has_blob(place, Digest.of(blob)):
            client.upload(place, Digest.of(blob), len(blob), lambda blob=blob: iter((blob,)))  # type: ignore[misc]
    digest, known = client.put_artifact(place, manifest)
    if not known:
        described = {
            "mediaType": OCI_MANIFEST,
            "digest": digest,
            "size": len(manifest),
            "artifactType": kind,
            **({"annotations": dict(annotations)} if annotations else {}),
        }
        _list(client, place, Digest(subject["digest"]), described)
    return digest


def attached(client: Registry, target: Reference, digest: Digest) -> list[dict[str, Any]]:
    """What the referrers tag of an image lists: descriptors of artifacts. Raises NetworkError."""
    try:
        found = client.manifest(_tag(target, digest))
    except PinError:
        return []
    return [dict(item) for item in found.json.get("manifests") or ()]


def _list(client: Registry, place: Reference, digest: Digest, described: dict[str, Any]) -> None:
    listed = attached(client, place, digest)
    if any(item.get("digest") == described["digest"] for item in listed):
        return
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [*listed, described]}
    client.put_manifest(_tag(place, digest), json.dumps(index).encode(), OCI_INDEX)


def _tag(place: Reference, digest: Digest) -> Reference:
    return Reference(place.registry, place.repository, digest.tag)
