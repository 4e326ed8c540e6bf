"""Attaches artifacts to an image in a registry, as in the OCI distribution specification 1.1 (referrers).

An artifact is a manifest whose `subject` is the image. Registries with the referrers API list it themselves; for
others the client keeps an index under the tag `sha256-HEX` (the specification's referrers tag schema).
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from builder.digest import Digest
from builder.errors import InvalidError, NetworkError, PinError
from builder.model.canonical import canonical
from builder.model.reference import Reference
from builder.oci.manifest import OCI_INDEX, OCI_MANIFEST
from builder.parallel import every
from builder.registry.client import Registry

EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
_EMPTY = b"{}"
_AT_ONCE = 8
"""Requests at the same time."""
_WRITES = 5
"""Times that the list of artifacts is written, when others write it at the same time."""
_PAUSE = 0.4
"""Seconds, at most, between two of them."""
_MOST_UNCLEAR = 100
"""Artifacts whose type only their manifest tells, and which are looked at."""


@dataclass(frozen=True)
class Artifact:
    """A blob to attach. kind: the type of the artifact and of its blob."""

    payload: bytes
    kind: str
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Attached:
    """An artifact: its blob, the digest of the image that it is about, and its annotations."""

    payload: bytes
    subject: str
    annotations: Mapping[str, str]


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
    """Attach one blob to an image, as `attach_all`; returns the digest of the artifact."""
    (digest,) = attach_all(client, target, subject, [Artifact(payload, kind, annotations or {})])
    return digest


def attach_all(
    client: Registry, target: Reference, subject: Mapping[str, Any], artifacts: Sequence[Artifact]
) -> list[Digest]:
    """Attach blobs to an image in the repository of `target`; returns the digests of the artifacts.

    subject: the image's descriptor (mediaType, digest, size). Attaching the same again changes nothing.
    Raises NetworkError or PinError.
    """
    place = Reference(target.registry, target.repository)
    manifests = [artifact(subject, item.payload, item.kind, item.annotations) for item in artifacts]
    there = every(lambda manifest: client.has_manifest(place, Digest.of(manifest)), manifests, _AT_ONCE)
    missing = [item.payload for item, known in zip(artifacts, there, strict=True) if not known]
    blobs = {Digest.of(blob): blob for blob in (_EMPTY, *missing)} if missing else {}

    def upload(digest: Digest) -> None:
        if not client.has_blob(place, digest):
            client.upload(place, digest, len(blobs[digest]), lambda: iter((blobs[digest],)))

    every(upload, list(blobs), _AT_ONCE)
    return _put(client, place, manifests)


def attach_manifest(client: Registry, target: Reference, manifest: bytes) -> Digest:
    """Attach an artifact, whose blobs the repository has, to the image that its `subject` names; returns its digest.

    Raises NetworkError or PinError.
    """
    (digest,) = _put(client, Reference(target.registry, target.repository), [manifest])
    return digest


def _put(client: Registry, place: Reference, manifests: Sequence[bytes]) -> list[Digest]:
    """Write the manifests of artifacts of one image, and list those that the registry does not list by itself."""
    digests: list[Digest] = []
    unlisted: list[dict[str, Any]] = []
    about: dict[str, Any] = {}
    put = every(lambda data: client.put_artifact(place, data), manifests, _AT_ONCE)
    for manifest, (digest, listed) in zip(manifests, put, strict=True):
        digests.append(digest)
        about = json.loads(manifest)
        descriptor = {
            "mediaType": OCI_MANIFEST,
            "digest": digest,
            "size": len(manifest),
            "artifactType": about["artifactType"],
            **({"annotations": about["annotations"]} if about["annotations"] else {}),
        }
        unlisted += [] if listed else [descriptor]
    if unlisted:
        _list(client, place, Digest(about["subject"]["digest"]), unlisted)
    return digests


def attached(client: Registry, target: Reference, digest: Digest, kind: str) -> list[dict[str, Any]]:
    """The descriptors of artifacts of a type that are attached to an image. Raises NetworkError.

    Those that the registry lists, and those under the referrers tag: an image copied from another registry may have it.
    """
    listed = client.referrers(target, digest, kind)
    known = {item["digest"] for item in listed}
    tagged = [item for item in _tagged(client, target, digest) if item["digest"] not in known]
    found = [item for item in tagged if item.get("artifactType") == kind]
    # cosign lists its artifacts there with the type of their configuration.
    unclear = [item for item in tagged if item.get("artifactType") == EMPTY_TYPE][:_MOST_UNCLEAR]
    return [*listed, *found, *(item for item in unclear if _kind(client, target, item) == kind)]


def _kind(client: Registry, target: Reference, descriptor: Mapping[str, Any]) -> Any:
    """The type in the manifest of an artifact; None when the registry does not have it, or it is malformed."""
    place = Reference(target.registry, target.repository, digest=Digest(descriptor["digest"]))
    return document_of(client, place).get("artifactType")


def document_of(client: Registry, place: Reference, *, own: bool = False) -> Mapping[str, Any]:
    """A manifest or index as plain values; empty when the registry does not have it, or it is malformed: anybody who
    may push can do that. own: as in `Registry.manifest`. Raises NetworkError.
    """
    try:
        return client.manifest(place, own=own).json
    except PinError:
        return {}
    except NetworkError as error:
        if error.id != "manifest-malformed":
            raise
        return {}


def read_attached(client: Registry, target: Reference, descriptor: Mapping[str, Any], limit: int) -> Attached:
    """An artifact with one blob of at most `limit` bytes. Raises NetworkError, PinError.

    Raises InvalidError for what is attached and is no such artifact: anybody who may push can do that.
    """
    place = Reference(target.registry, target.repository, digest=Digest(descriptor["digest"]))
    try:
        manifest = client.manifest(place)
    except NetworkError as error:
        if error.id != "manifest-malformed":
            raise
        raise _malformed(place, error.cause) from None
    subject = manifest.json.get("subject")
    annotations = manifest.json.get("annotations")
    if manifest.is_index or len(manifest.layers) != 1 or not isinstance(subject, dict):
        raise _malformed(place)
    if not isinstance(annotations, dict) or not all(isinstance(value, str) for value in annotations.values()):
        annotations = {}
    blob = manifest.layers[0]
    if blob.size > limit:
        what = f"an artifact of {blob.size} bytes"
        raise InvalidError(what, id="artifact-too-large", where=str(place), cause=f"the limit is {limit} bytes")
    return Attached(client.small_blob(place, blob), str(subject.get("digest")), annotations)


def _malformed(place: Reference, cause: str = "") -> InvalidError:
    what = "not an artifact with one blob and a subject"
    return InvalidError(what, id="artifact-malformed", where=str(place), cause=cause)


def _tagged(client: Registry, target: Reference, digest: Digest) -> list[dict[str, Any]]:
    # Not a mirror's: what is read is written again.
    found = document_of(client, _tag(target, digest), own=True)
    return [dict(item) for item in found.get("manifests") or ()]


def _list(client: Registry, place: Reference, digest: Digest, descriptors: Sequence[dict[str, Any]]) -> None:
    """Add artifacts to the list under the referrers tag. Others may write it at the same time, so it is read again."""
    for left in reversed(range(_WRITES)):
        listed = _tagged(client, place, digest)
        known = {item.get("digest") for item in listed}
        new = [item for item in descriptors if item["digest"] not in known]
        if not new:
            return
        index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [*listed, *new]}
        try:
            client.put_manifest(_tag(place, digest), json.dumps(index).encode(), OCI_INDEX)
        except NetworkError:
            # Two writers of one manifest confuse docker-registry for a moment.
            if not left:
                raise
            time.sleep(_PAUSE * random.random())


def _tag(place: Reference, digest: Digest) -> Reference:
    return Reference(place.registry, place.repository, digest.tag)
