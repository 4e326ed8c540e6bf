"""Manifests and indexes, OCI's and Docker's: parsing, platforms, and how they are compared with a pin. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from builder.digest import Digest, is_digest
from builder.errors import NetworkError, PinError
from builder.oci.document import parse_document

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
MANIFESTS = (OCI_MANIFEST, DOCKER_MANIFEST)
INDEXES = (OCI_INDEX, DOCKER_LIST)

_ATTESTATION = "vnd.docker.reference.type"
"""The annotation of an attestation in an index."""

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
        document = parse_document(data)
    except ValueError as error:
        raise _malformed(where, f"it is not valid JSON: {error}"[:300]) from None
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
    """The digest of the manifest for `platform` (os/architecture[/variant]) in an index. Raises PinError.

    An index with two entries for the platform is refused: engines differ in the one that they run.
    """
    wanted = _normal(*platform.split("/"))
    fitting: dict[str, dict[str, Any]] = {}
    there = []
    for entry in index.json.get("manifests") or ():
        found = entry.get("platform") or {}
        names = [found.get(key, "") for key in ("os", "architecture", "variant")]
        if found and _normal(*names) == wanted:
            fitting[entry["digest"]] = entry
        elif found.get("os") == "unknown" or _ATTESTATION in (entry.get("annotations") or {}):
            # BuildKit lists an attestation as a manifest for the platform unknown/unknown.
            continue
        else:
            there.append(_kind(entry) or "/".join(names).strip("/") or "an image for no platform")
    if len(fitting) > 1:
        raise PinError(
            f"several {platform} images in this index",
            id="platform-ambiguous",
            where=where,
            cause="container engines differ in the image that they run",
            next=f"name the digest of one: {', '.join(fitting)}"[:300],
        )
    for digest, entry in fitting.items():
        # Some engines ask for these features, and else take an image for no platform.
        features = [name for name in ("os.features", "os.version") if entry["platform"].get(name)]
        if not (kind := _kind(entry) or (f"an image with {features[0]}" if features else "")):
            return Digest(digest)
        there.append(kind)
    raise PinError(
        f"no {platform} image in this index",
        id="platform-missing",
        where=where,
        cause=f"it holds {ascii(', '.join(there))[1:-1][:300] or 'no image at all'}",
        next="pin a tag that is built for this platform",
    )


def _kind(entry: Mapping[str, Any]) -> str:
    """What an entry of an index is; "" for an image."""
    if _ATTESTATION in (entry.get("annotations") or {}):
        return "an attestation"
    if entry["mediaType"] in MANIFESTS:
        return ""
    return "an index" if entry["mediaType"] in INDEXES else "an artifact"


def check_platform(config: bytes, platform: str, where: str = "") -> None:
    """Raise PinError unless `platform` is the platform in an image's config."""
    try:
        document = parse_document(config)
    except ValueError:
        document = None
    found = document if isinstance(document, dict) else {}
    parts = ["" if found.get(key) is None else found[key] for key in ("os", "architecture", "variant")]
    if all(isinstance(part, str) for part in parts) and parts[0] and _normal(*parts) == _normal(*platform.split("/")):
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
    # As containerd: arm64 is aarch64, arm64/v8 and arm64/v8.0, arm is arm/v7; no operating system is the machine's.
    architecture = {"aarch64": "arm64"}.get(architecture.lower(), architecture.lower())
    usual = {"arm64": "v8", "arm": "v7"}.get(architecture, "")
    variant = variant.lower().removesuffix(".0")
    return os.lower() or "linux", architecture, (f"v{variant}" if variant.isdecimal() else variant) or usual


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
