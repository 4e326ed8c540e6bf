"""Checks that no layer covers a file of another layer, except the paths that it lists under `replaces`."""

from __future__ import annotations

import json
from collections.abc import Mapping

from builder.errors import InvalidError, PinError
from builder.model.plan import Plan
from builder.store.records import LayerRecord
from builder.store.store import Store


def check_conflicts(plan: Plan, records: Mapping[str, LayerRecord], store: Store) -> None:
    """Raises InvalidError for a path that a later layer covers without listing it under `replaces`, and for a path that
    is a folder in one layer and a file or link in another, which would hide or move everything below it."""
    owners: dict[str, str] = {}
    folders: dict[str, str] = {}
    for layer in plan.layers:
        if layer.producer == "config":
            continue
        allowed = {path.strip("/") for path in layer.replaces}
        listing = records[layer.id].listing
        store.verify(listing)
        for line in b"".join(store.chunks(listing)).splitlines():
            path, kind = _listed(line, layer.id)
            if kind == "dir":
                folders.setdefault(path, layer.id)
            if path in owners if kind == "dir" else path in folders:
                raise InvalidError(
                    f"/{path} is a folder in layer {folders[path]}, but not in layer {owners.get(path, layer.id)}",
                    id="layer-folder-conflict",
                    where=f"dockerfiles/layers/{layer.layer}/layer.yaml",
                )
            if kind == "dir":
                continue
            if path in owners and path not in allowed:
                raise InvalidError(
                    f"layer {layer.id} covers /{path} of layer {owners[path]}",
                    id="layer-file-conflict",
                    where=f"dockerfiles/layers/{layer.layer}/layer.yaml",
                    cause="a layer may only cover files that it lists under `replaces`",
                )
            owners[path] = layer.id


def _listed(line: bytes, layer: str) -> tuple[str, str]:
    """The path and the kind in a line of a listing."""
    try:
        path, kind, *_ = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        path = kind = None
    if not isinstance(path, str) or not isinstance(kind, str):
        raise PinError(
            f"the listing of layer {layer} in the store is not readable",
            id="listing-unreadable",
            cause="something other than builder changed the store",
            next="remove the store and build again",
        )
    return path, kind
