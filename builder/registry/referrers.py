"""Attaches artifacts to an image in a registry, as in the OCI distribution specification 1.1 (referrers).

An artifact is a manifest whose `subject` is the image. Registries with the referrers API list it themselves; for
others the client keeps an index under the tag `sha256-HEX` (the specification's referrers tag schema).
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
    """The manifest of an artifact with one blob.

    subject: the descriptor of the image. kind: the type of the artifact and of its blob.
    """
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
    """Attach one blob to an image in the repository of `target`; returns the digest of the artifact.

    subject: the image's descriptor (mediaType, digest, size). Attaching the same again changes nothing.
    Raises NetworkError or PinError.
    """
    manifest = artifact(subject, payload, kind, annotations or {})
    place = Reference(target.registry, target.repository)
    for blob in (_EMPTY, payload):
        if not client.has_blob(place, Digest.of(blob)):
            client.upload(place, Digest.of(blob), len(blob), lambda blob=blob: iter((blob,)))  # type: ignore[misc]
    digest, listed = client.put_artifact(place, manifest)
    if not listed:
        descriptor = {
            "mediaType": OCI_MANIFEST,
            "digest": digest,
            "size": len(manifest),
            "artifactType": kind,
            **({"annotations": dict(annotations)} if annotations else {}),
        }
        _list(client, place, Digest(subject["digest"]), descriptor)
    return digest


def attached(client: Registry, target: Reference, digest: Digest) -> list[dict[str, Any]]:
    """The descriptors of artifacts under the referrers tag of an image. Raises NetworkError."""
    try:
        found = client.manifest(_tag(target, digest))
    except PinError:
        return []
    return [dict(item) for item in found.json.get("manifests") or ()]


def _list(client: Registry, place: Reference, digest: Digest, descriptor: dict[str, Any]) -> None:
    listed = attached(client, place, digest)
    if any(item.get("digest") == descriptor["digest"] for item in listed):
        return
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [*listed, descriptor]}
    client.put_manifest(_tag(place, digest), json.dumps(index).encode(), OCI_INDEX)


def _tag(place: Reference, digest: Digest) -> Reference:
    return Reference(place.registry, place.repository, digest.tag)
