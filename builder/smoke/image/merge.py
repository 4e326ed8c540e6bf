"""Merging layers with their whiteouts: the files that a container sees, and the entries that an upper layer covers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from builder.smoke.image.index import Entry, LayerIndex, too_many
from builder.smoke.image.layerpaths import ambiguous

_MOST_DROPS = 60_000_000
"""Entries that are looked at to remove some: all of the layers below, for each layer that removes any."""


@dataclass(frozen=True, slots=True)
class Covered:
    """An entry of `layer` replaces an entry of the kind `was` of the lower layer `below`."""

    path: str
    was: str
    below: int
    layer: int


def merge(layers: Iterable[LayerIndex], covered: list[Covered] | None = None) -> dict[str, Entry]:
    """The entries that a container sees, with whiteouts applied. covered: gets the covered entries.

    Raises InvalidError for members below a link or file of a lower layer, and for too much work.
    """
    merged: dict[str, Entry] = {}
    left = _MOST_DROPS
    for layer in layers:
        seen = {""}
        for path in (*layer.removed, *layer.opaque):
            folder = path if path in layer.opaque else path.rpartition("/")[0]
            while folder not in seen and folder not in layer.entries:
                seen.add(folder)
                _check_folder(merged, folder, layer)
                folder = folder.rpartition("/")[0]
        if layer.removed or layer.opaque:
            left -= len(merged)
            if left < 0:
                raise too_many(layer.blob)
            _drop(merged, layer.removed, layer.opaque)
        folders = {""}
        replaced: set[str] = set()
        for path, entry in layer.entries.items():
            _add_parents(merged, path.rpartition("/")[0], folders, layer)
            below = merged.get(path)
            if below is not None and below.kind == "dir" and entry.kind != "dir":
                replaced.add(path)
            if covered is not None and below is not None and _hides(entry, below):
                covered.append(Covered(path, below.kind, below.layer, entry.layer))
            # A directory over a symlink hides the symlink and its target, as in a container.
            merged[path] = entry
        if replaced:
            left -= len(merged)
            _drop(merged, set(), replaced, since=layer.number)
    return merged


def _hides(entry: Entry, below: Entry) -> bool:
    return below.layer < entry.layer and not below.kind == entry.kind == "dir"


def _add_parents(merged: dict[str, Entry], folder: str, known: set[str], layer: LayerIndex) -> None:
    """Add the folders of a layer's member that no layer has as a member."""
    while folder not in known:
        _check_folder(merged, folder, layer)
        merged.setdefault(folder, Entry("dir", 0o755, 0, 0, 0, "", layer.number, folder))
        known.add(folder)
        folder = folder.rpartition("/")[0]


def _check_folder(merged: dict[str, Entry], folder: str, layer: LayerIndex) -> None:
    # Below a link of a lower layer, some engines follow the link and others make a folder that hides it.
    found = merged.get(folder)
    if found is not None and found.kind != "dir":
        raise ambiguous(f"the layer changes files below /{folder}, a {found.kind} of a lower layer", layer.blob.digest)


def _drop(merged: dict[str, Entry], removed: set[str], emptied: set[str], since: int | None = None) -> None:
    gone = []
    # Each folder is judged once: with deep paths, going up from every file takes minutes.
    inside: dict[str, bool] = {"": "" in emptied}

    def is_inside(folder: str) -> bool:
        todo = []
        while folder not in inside:
            todo.append(folder)
            folder = folder.rpartition("/")[0]
        for name in reversed(todo):
            inside[name] = name in removed or name in emptied or inside[name.rpartition("/")[0]]
        return inside[todo[0]] if todo else inside[folder]

    for path, entry in merged.items():
        if (since is None or entry.layer < since) and (path in removed or is_inside(path.rpartition("/")[0])):
            gone.append(path)
    for path in gone:
        del merged[path]
