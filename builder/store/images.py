"""Lists the images of a store from their records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.digest import Digest, is_digest
from builder.model.plan import PlannedLayer
from builder.store.records import read_record
from builder.store.store import Store

_MOST_PUSHED = 20


@dataclass(frozen=True)
class StoredImage:
    """An image in the store. key: of its plan. used: the time of its last use, in seconds since 1970.

    layers: the key of each layer by id, "" for one without files. params: the parameters of each layer, by id. rows:
    what the record says of each layer. base_image: the reference of a vendor's base. pushed: the references that it was
    pushed to.
    """

    key: str
    used: float
    recipe: str
    base: str
    profile: str | None
    digest: Digest
    layers: dict[str, str]
    params: dict[str, dict[str, Any]]
    rows: dict[str, dict[str, Any]]
    base_image: str | None
    pushed: tuple[str, ...] = ()
    named: bool = True
    """False for one that was built from a stranger's plan, which may say any recipe, or that `bisect` made."""


def note_push(store: Store, key: str, reference: str) -> None:
    """Note in the record of an image, by the key of its plan, where it was pushed. Raises EngineError."""
    data = store.image(key)
    if data is not None:
        noted = data.get("pushed")
        before = [item for item in noted if item != reference] if isinstance(noted, list) else []
        store.record_image(key, {**data, "pushed": [*before, reference][-_MOST_PUSHED:]})


def stored_images(store: Store) -> list[StoredImage]:
    """The images of a store, the last used first. Damaged records are left out, as if they were absent."""
    found = map(read_image, (store.root / "images").glob("*.json"))
    return sorted((image for image in found if image is not None), key=lambda image: -image.used)


def read_image(path: Path) -> StoredImage | None:
    """The image of a record; None for a damaged one, and for one that another process removes meanwhile."""
    with contextlib.suppress(OSError, KeyError, TypeError, ValueError, AttributeError):
        data = read_record(path) or {}
        rows = {str(row["id"]): row for row in data["layers"]}
        if not is_digest(data["digest"]):
            return None
        profile, base = data.get("profile"), data.get("base_image")
        return StoredImage(
            path.stem,
            path.lstat().st_mtime,
            str(data["recipe"]),
            str(data["base"]),
            profile if profile is None else str(profile),
            Digest(data["digest"]),
            {name: str(row["key"]) for name, row in rows.items()},
            {name: dict(row.get("params", {})) for name, row in rows.items()},
            rows,
            str(base.get("reference")) if isinstance(base, dict) else None,
            tuple(map(str, data.get("pushed", ()))),
            data.get("named") is not False,
        )
    return None


def earlier_seconds(store: Store, layers: Iterable[PlannedLayer]) -> dict[str, float]:
    """How many seconds each layer took when one of its id was made here before, by id; layers without one are left out.

    One with equal parameters comes first, then that of the image that was used last. What an engine runs takes as long
    as its parameters say: only equal ones count.
    """
    found: dict[str, float] = {}
    images = stored_images(store)
    for layer in layers:
        alike = [image for image in images if image.params.get(layer.id) == layer.params]
        for image in [*alike, *images] if layer.producer == "files" else alike:
            key = image.layers.get(layer.id)
            if key and (seconds := store.seconds(key)):
                found[layer.id] = seconds
                break
    return found
