"""Reading a store's blobs and unfinished files, and a record for its index."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from builder.digest import Digest
from builder.store.records import LayerRecord
from builder.store.store import Store

KEY = "a" * 64
"""The key of a layer."""


def blobs(store: Store) -> set[str]:
    """The names of all blobs of a store."""
    return {path.name for path in (store.root / "blobs/sha256").iterdir()}


def temporary(store: Store) -> list[str]:
    """The names of a store's unfinished files."""
    return [path.name for path in store.tmp.iterdir()]


def deep_folder(folder: Path, depth: int) -> None:
    """Make folders inside each other, below an existing one, with names so short that paths reach some depth."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def receipt(digest: str, key: str = KEY) -> bytes:
    """The receipt of a layer that was made from nothing."""
    return json.dumps({"key": key, "digest": digest, "used": []}).encode()


def record(store: Store, **more: Any) -> LayerRecord:
    """A record of the layer of KEY whose blobs are in the store; keywords replace its fields."""
    values: dict[str, Any] = {
        "digest": store.put(b"layer"),
        "size": 5,
        "diff_id": Digest.of(b"tar"),
        "tar_size": 3,
        "media_type": "x",
        "entries": 1,
        "listing": store.put(b"listing"),
    }
    digest = more.get("digest", values["digest"])
    values["receipt"] = store.put(receipt(digest))
    return LayerRecord(**{**values, **more})
