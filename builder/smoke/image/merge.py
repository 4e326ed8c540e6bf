"""Merging layers: the files that a container sees, and the entries that an upper layer covers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from builder.smoke.image.index import Entry, LayerIndex


@dataclass(frozen=True, slots=True)
class Covered:
    """An entry of `layer` replaces an entry of the kind `was` of the lower layer `below`."""

    path: str
    was: str
    below: int
    layer: int


def merge(layers: Iterable[LayerIndex], covered: list[Covered] | None = None) -> dict[str, Entry]:
    """The entries that a container sees, with whiteouts applied. covered: gets the covered entries."""
    merged: dict[str, Entry] = {}
    for layer in layers:
        _drop(merged, layer.removed, layer.opaque)
        folders: dict[str, str] = {"": ""}
        replaced: set[str] = set()
        for path, entry in layer.entries.items():
            parent, _, name = path.rpartition("/")
            place = _real(merged, parent, folders, entry.layer)
            real = f"{place}/{name}" if place else name
            below = merged.get(real)
            if below is not None and below.kind == "dir" and entry.kind != "dir":
                replaced.add(real)
            if covered is not None and below is not None and _hides(entry, below):
                covered.append(Covered(real, below.kind, below.layer, entry.layer))
            # A directory over a symlink hides the symlink and its target, as in a container.
            merged[real] = entry
            folders.pop(path, None)
        if replaced:
            _drop(merged, set(), replaced, since=layer.number)
    return merged


def _hides(entry: Entry, below: Entry) -> bool:
    return below.layer < entry.layer and not below.kind == entry.kind == "dir"


def _real(merged: dict[str, Entry], folder: str, known: dict[str, str], layer: int) -> str:
    """The path of a layer's folder with symlinks of lower layers followed; missing folders are added."""
    names: list[str] = []
    while folder not in known:
        folder, _, name = folder.rpartition("/")
        names.append(name)
    place = known[folder]
    for name in reversed(names):
        folder = f"{folder}/{name}" if folder else name
        place = f"{place}/{name}" if place else name
        for _ in range(40):
            entry = merged.get(place)
            if entry is None or entry.kind != "symlink":
                break
            start = "" if entry.link.startswith("/") else place.rpartition("/")[0]
            place = os.path.normpath(f"/{start}/{entry.link}").lstrip("/")
        if place and place not in merged:
            merged[place] = Entry("dir", 0o755, 0, 0, 0, "", layer, place)
        known[folder] = place
    return place


def _drop(merged: dict[str, Entry], removed: set[str], emptied: set[str], since: int | None = None) -> None:
    if not removed and not emptied:
        return
    gone = []
    for path, entry in merged.items():
        if since is not None and entry.layer >= since:
            continue
        above = path
        hit = path in removed
        while not hit and above:
            above = above.rpartition("/")[0]
            hit = above in removed or above in emptied
        if hit:
            gone.append(path)
    for path in gone:
        del merged[path]
