"""An entry of a layer cache: what one builder says a layer key gives. Statements and entries, both ways. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from builder.attest.statement import LAYER, Statement
from builder.digest import Digest
from builder.jsontext import first_problem
from builder.model.canonical import canonical
from builder.model.common import Sha256
from builder.oci.format import MEDIA_TYPES
from builder.oci.manifest import OCI_MANIFEST
from builder.store.records import LayerRecord
from builder.text import one_line

KEY_TYPE = "application/vnd.builder.layer-key.v1"
"""The artifact that stands for a layer key; statements and layers are attached to it."""
LAYER_TYPE = "application/vnd.builder.layer.v1"
LISTING_TYPE = "application/vnd.builder.layer.listing.v1"
RECEIPT_TYPE = "application/vnd.builder.layer.receipt.v1+json"
STATEMENT = 1 << 13
"""Bytes of a signed statement about a layer, at most; it has about three thousand. Strangers' are kept while it is
built."""
EMPTY = b"{}"
_CONFIG = {"mediaType": "application/vnd.oci.empty.v1+json", "digest": Digest.of(EMPTY), "size": len(EMPTY)}

_Size = Annotated[int, Field(ge=0, le=1 << 40)]
_SmallSize = Annotated[int, Field(ge=0, le=256 << 20)]


class _Blob(BaseModel):
    """A small blob beside a layer; size in bytes."""

    model_config = ConfigDict(strict=True, extra="forbid")
    digest: Digest
    size: _SmallSize


class _Layer(BaseModel):
    """The members of LayerRecord as a statement has them."""

    model_config = ConfigDict(strict=True, extra="forbid")
    digest: Digest
    size: _Size
    diff_id: Digest
    tar_size: _Size
    media_type: str
    entries: _Size
    listing: _Blob
    receipt: _Blob


class _Predicate(BaseModel):
    """The predicate of the type LAYER; members of later versions are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")
    key: Sha256
    layer: _Layer


@dataclass(frozen=True)
class Entry:
    """What a statement says of a layer key. builder: the name of the key that signed it; empty for an unknown one.

    artifact: of the statement. listing_size, receipt_size: in bytes.
    """

    builder: str
    artifact: Digest
    statement: Statement
    layer: LayerRecord
    listing_size: int
    receipt_size: int

    def agrees(self, layer: LayerRecord) -> bool:
        """Whether this is the same layer. Receipts are not compared: a machine of another architecture has another."""
        own, other = (replace(item, receipt=None, origin="") for item in (self.layer, layer))
        return own == other

    @property
    def said(self) -> str:
        """Who built what and when, for messages."""
        time = one_line(str(self.statement.predicate.get("finishedOn"))[:20])
        return f"{self.builder or 'an unknown key'} built {self.layer.digest} ({time})"


def key_manifest(key: str) -> bytes:
    """The manifest that stands for a layer key in a registry: its digest follows from the key alone."""
    return _manifest(KEY_TYPE, [{**_CONFIG}], {"org.builder.layer.key": key})


def layer_manifest(entry_of: Mapping[str, Any], subject: Digest) -> bytes:
    """The manifest that holds the blobs of a layer. entry_of: its predicate. subject: the digest of its key's."""
    layer = entry_of["layer"]
    blobs = [
        {"mediaType": layer["media_type"], "digest": layer["digest"], "size": layer["size"]},
        {"mediaType": LISTING_TYPE, **layer["listing"]},
        {"mediaType": RECEIPT_TYPE, **layer["receipt"]},
    ]
    about = {"mediaType": OCI_MANIFEST, "digest": subject, "size": len(key_manifest(entry_of["key"]))}
    return _manifest(LAYER_TYPE, blobs, {"org.opencontainers.image.title": entry_of["name"]}, about)


def predicate(
    key: str,
    name: str,
    layer: LayerRecord,
    sizes: tuple[int, int],
    *,
    machine: Mapping[str, str],
    finished: str,
) -> dict[str, Any]:
    """What a builder says of a layer that it built. name: of the layer. sizes: of listing and receipt, in bytes.

    machine: architecture and version of the builder. finished: RFC 3339, in UTC.
    """
    described = asdict(layer)
    del described["origin"], described["seconds"]
    for member, size in zip(("listing", "receipt"), sizes, strict=True):
        described[member] = {"digest": described[member], "size": size}
    return {"key": key, "name": name, "layer": described, "verifier": dict(machine), "finishedOn": finished}


def read_entry(statement: Statement, key: str, builder: str, artifact: Digest) -> Entry:
    """The entry in a statement of anybody. Raises ValueError, also when it is about another layer key."""
    if statement.type != LAYER:
        raise ValueError("it is not about a layer")
    try:
        found = _Predicate.model_validate(statement.predicate)
    except ValidationError as error:
        raise ValueError(f"it is malformed: {first_problem(error)}") from None
    if found.key != key:
        raise ValueError(f"it is about another layer key, {found.key[:12]}")
    about = found.layer
    if about.media_type not in MEDIA_TYPES.values() or about.digest not in statement.subjects:
        raise ValueError("it is not about a layer blob")
    values = about.model_dump() | {"listing": about.listing.digest, "receipt": about.receipt.digest}
    return Entry(builder, artifact, statement, LayerRecord(**values), about.listing.size, about.receipt.size)


def _manifest(
    kind: str, layers: list[dict[str, Any]], annotations: dict[str, str], subject: dict[str, Any] | None = None
) -> bytes:
    return canonical(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": kind,
            "config": _CONFIG,
            "layers": layers,
            "annotations": annotations,
            **({"subject": subject} if subject is not None else {}),
        }
    )
