"""Records: small JSON files of the store, for the layer of each layer key and for images. Read, checked and written."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from builder.digest import Digest
from builder.errors import InvalidError
from builder.jsontext import read_json
from builder.model.canonical import fingerprint
from builder.store.blobs import put_in_place

_DIGESTS = ("digest", "diff_id", "listing", "receipt")


@dataclass(frozen=True)
class LayerRecord:
    """A built layer. digest and size are of the compressed blob, diff_id and tar_size of the tar inside it (bytes).

    listing: digest of a blob with one JSON line `[path, kind, mode, size, link]` for each entry, in the tar's order.
    receipt: digest of a blob that lists what the layer was made from (`builder/attest/receipt.py`); None until the
    layer is complete. origin: the layer cache that it was taken from; empty for a layer that this store's user built.
    seconds: how long it took to make it here, for estimates; 0 when not known.
    """

    digest: Digest
    size: int
    diff_id: Digest
    tar_size: int
    media_type: str
    entries: int
    listing: Digest
    receipt: Digest | None = None
    origin: str = ""
    seconds: float = field(default=0.0, compare=False)


def layer_name(key: str) -> str:
    """The file name of a layer key's record. Raises InvalidError for text that is not a layer key."""
    return f"{checked_key(key)}.json"


def checked_key(key: str) -> str:
    """The layer key, which becomes a file name. Raises InvalidError for text that is not a layer key."""
    if not key.isalnum():
        raise InvalidError(f"not a layer key: {key[:100]!a}", id="layer-key-invalid")
    return key


def layer_data(key: str, record: LayerRecord) -> dict[str, Any]:
    """A layer record as plain data, with its checksum."""
    data = asdict(record)
    return data | {"check": _checksum(key, data)}


def parse_layer(key: str, data: dict[str, Any] | None) -> LayerRecord | None:
    """The layer record in plain data; None when it is absent, damaged, of another key, or has no receipt."""
    if data is None or data.get("check") != _checksum(key, {k: v for k, v in data.items() if k != "check"}):
        return None
    try:
        # Records of older versions have neither origin nor seconds.
        values: dict[str, Any] = {item.name: data[item.name] for item in fields(LayerRecord) if item.name in data}
        digests = {name: Digest(values[name]) for name in _DIGESTS}
        return LayerRecord(**{**values, **digests})
    except (KeyError, TypeError, ValueError):
        return None


def read_record(path: Path) -> dict[str, Any] | None:
    """A JSON object; None when the file is absent, unreadable or damaged: the next build writes it again."""
    try:
        data = read_json(path)
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def write_record(path: Path, data: dict[str, Any], tmp: Path, owner: str) -> None:
    """Write a JSON object atomically, through a file below `tmp` that `owner` names. Raises OSError."""
    name = None
    try:
        descriptor, name = tempfile.mkstemp(prefix=f"{owner}-", dir=tmp)
        with os.fdopen(descriptor, "w") as file:
            json.dump(data, file, indent=1, sort_keys=True)
        put_in_place(Path(name), path)
    except OSError:
        if name is not None:
            Path(name).unlink(missing_ok=True)
        raise


def _checksum(key: str, data: dict[str, Any]) -> str:
    """Detects a record that is damaged or belongs to another key: unlike a blob, it is not named by its hash."""
    return fingerprint([key, data])
