"""Manifests and indexes, OCI's and Docker's: parsing, platforms, and how they are compared with a pin. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from builder.digest import Digest, is_digest
from builder.errors import NetworkError, PinError
from builder.jsontext import parse_json

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
MANIFESTS = (OCI_MANIFEST, DOCKER_MANIFEST)
INDEXES = (OCI_INDEX, DOCKER_LIST)

MANIFEST_LIMIT = 4 << 20
"""In bytes: every registry accepts manifests of this size, and this client reads no larger ones."""


@dataclass(frozen=True)
class Descriptor:
    """A blob in a manifest; size in bytes."""

    digest: Digest
    size: int
    media_type: str


@dataclass(frozen=True)
class Manifest:
    """A manifest or index: its exact bytes and their digest."""

    data: bytes
    media_type: str
    digest: Digest

    @cached_property
    def json(self) -> dict[str, Any]:
        """The parsed document; do not change it."""
        value = json.loads(self.data)
        assert isinstance(value, dict)
        return value

    @cached_property
    def config(self) -> Descriptor:
        """The config of an image; an index has none."""
        return _descriptor(self.json["config"])

    @cached_property
    def layers(self) -> tuple[Descriptor, ...]:
        """The layers of an image, the lowest first; an index has none."""
        return tuple(map(_descriptor, self.json["layers"]))

    @property
    def is_index(self) -> bool:
        """Whether it lists manifests of several platforms."""
        return self.media_type in INDEXES


def parse_manifest(data: bytes, content_type: str = "", where: str = "") -> Manifest:
    """Parse and check a manifest or index. content_type: the header of the answer. Raises NetworkError."""
    try:
        document = parse_json(data)
    except ValueError:
        raise _malformed(where, "it is not valid JSON, or has a key twice") from None
    version = document.get("schemaVersion") if isinstance(document, dict) else None
    if type(version) is not int or version != 2:
        raise _malformed(where, "it is not a manifest of schema version 2")
    kinds = MANIFESTS + INDEXES
    sent = content_type.partition(";")[0].strip().lower()
    own = document.get("mediaType")
    # Two readers must not understand one document differently (CVE-2021-41190).
    if "manifests" in document and ("layers" in document or "config" in document):
        raise _malformed(where, "it is both a manifest and an index")
    if own is None:
        own = sent if sent in kinds else OCI_INDEX if "manifests" in document else OCI_MANIFEST
    if own not in kinds or (sent in kinds and sent != own):
        raise _malformed(where, "its media type is unknown, or not the one it was served as")
    if own in INDEXES:
        entries = document.get("manifests")
        fits = isinstance(entries, list) and all(_is_entry(entry) for entry in entries)
    else:
        layers = document.get("layers")
        fits = _is_descriptor(document.get("config")) and isinstance(layers, list) and all(map(_is_descriptor, layers))
    if not fits:
        raise _malformed(where, "a descriptor in it is missing or malformed")
    return Manifest(data, own, Digest.of(data))


def choose_platform(index: Manifest, platform: str, where: str = "") -> Digest:
    """The digest of the manifest for `platform` (os/architecture[/variant]) in an index. Raises PinError."""
    wanted = _normal(*platform.split("/"))
    there = []
    for entry in index.json["manifests"]:
        found = entry.get("platform") or {}
        # An attestation is listed as a manifest for the platform unknown/unknown.
        if "vnd.docker.reference.type" in (entry.get("annotations") or {}) or found.get("os") == "unknown":
            continue
        if entry["mediaType"] not in MANIFESTS:
            there.append("an index" if entry["mediaType"] in INDEXES else "an artifact")
            continue
        if _normal(found.get("os", ""), found.get("architecture", ""), found.get("variant", "")) == wanted:
            return Digest(entry["digest"])
        name = "/".join(found.get(key, "") for key in ("os", "architecture", "variant")).strip("/")
        there.append(name or "an image for no platform")
    raise PinError(
        f"no {platform} image in this index",
        id="platform-missing",
        where=where,
        cause=f"it holds {ascii(', '.join(there))[1:-1][:300] or 'no image at all'}",
        next="pin a tag that is built for this platform",
    )


def check_platform(config: bytes, platform: str, where: str = "") -> None:
    """Raise PinError unless `platform` is the platform in an image's config."""
    try:
        document = parse_json(config)
    except ValueError:
        document = None
    found = document if isinstance(document, dict) else {}
    parts = ["" if found.get(key) is None else found[key] for key in ("os", "architecture", "variant")]
    if all(isinstance(part, str) for part in parts) and _normal(*parts) == _normal(*platform.split("/")):
        return
    found_platform = ascii("/".join(str(part) for part in parts).strip("/"))[1:-1][:100]
    raise PinError(
        f"this image is not for {platform}",
        id="platform-mismatch",
        where=where,
        cause=f"its config names {found_platform or 'no platform'}",
        next=f"pin the digest of the {platform} manifest",
    )


def verified(chunks: Iterator[bytes], digest: Digest, where: str = "", size: int | None = None) -> Iterator[bytes]:
    """Yield `chunks`; the last one only when digest and size (in bytes) of the whole are right. Raises PinError."""
    seen, length, held = hashlib.sha256(), 0, b""
    for chunk in filter(None, chunks):
        seen.update(chunk)
        length += len(chunk)
        if size is not None and length > size:
            break
        if held:
            yield held
        held = chunk
    actual = Digest.from_hex(seen.hexdigest())
    if size is not None and length != size:
        raise PinError(
            f"{digest} is not {size} bytes long",
            id="content-size-mismatch",
            where=where,
            cause="the content is truncated, or differs from what is pinned",
        )
    if actual != digest:
        raise PinError(
            f"got {actual}, expected {digest}",
            id="content-mismatch",
            where=where,
            cause="the content differs from what is pinned",
        )
    if held:
        yield held


def _normal(os: str = "", architecture: str = "", variant: str = "", *_: str) -> tuple[str, str, str]:
    # Docker writes arm64 with and without the variant v8, arm with and without v7; both mean the same.
    usual = {"arm64": "v8", "arm": "v7"}.get(architecture, "")
    return os, architecture, variant or usual


def _descriptor(value: dict[str, Any]) -> Descriptor:
    return Descriptor(Digest(value["digest"]), value["size"], value["mediaType"])


def _is_descriptor(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("mediaType"), str)
        and is_digest(value.get("digest"))
        and type(value.get("size")) is int
        and 0 <= value["size"] < 2**63
        and _are_strings(value.get("annotations"))
    )


def _is_entry(value: object) -> bool:
    if not isinstance(value, dict) or not _is_descriptor(value):
        return False
    platform = value.get("platform")
    if platform is None:
        return True
    keys = ("os", "architecture", "variant")
    return isinstance(platform, dict) and all(isinstance(platform.get(key, ""), str) for key in keys)


def _are_strings(value: object) -> bool:
    return value is None or (isinstance(value, dict) and all(isinstance(text, str) for text in value.values()))


def _malformed(where: str, cause: str) -> NetworkError:
    return NetworkError(
        "the registry's manifest is malformed",
        id="manifest-malformed",
        where=where,
        cause=cause,
        next="check the reference and any mirror or proxy",
    )
