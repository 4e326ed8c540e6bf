"""In which files two layers differ."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from builder.smoke.image.index import Entry, LayerIndex, index_layer
from builder.smoke.image.opened import LayerBlob
from builder.smoke.image.scan import ScanOptions

_NOTHING = re.compile(r"(?!)")


def read_layer(blob: LayerBlob) -> LayerIndex:
    """The entries of a layer with the hashes of its files, and its diff_id, read and not taken from a record.

    Raises InvalidError for a layer that engines may read in different ways, NetworkError and PinError.
    """
    with tempfile.TemporaryDirectory() as unused:
        return index_layer(replace(blob, diff_id=None), 0, _NOTHING, Path(unused), ScanOptions(hash=True, files=True))


def differing_files(image: LayerIndex, rebuilt: LayerIndex) -> Iterator[str]:
    """One line for each path at which a layer of an image differs from the rebuilt one, sorted by path."""
    for path in sorted(image.entries.keys() | rebuilt.entries.keys()):
        theirs, ours = image.entries.get(path), rebuilt.entries.get(path)
        if theirs is None or ours is None:
            yield f"{path}: only in the {'rebuilt layer' if theirs is None else 'image'}"
        elif aspects := _aspects(theirs, ours):
            yield f"{path}: {', '.join(aspects)}"
    for path in sorted((image.removed | image.opaque) ^ (rebuilt.removed | rebuilt.opaque)):
        yield f"{path}: deletes files of lower layers, in one of the two only"
    for path, name in sorted({*image.attributes} ^ {*rebuilt.attributes}):
        yield f"{path}: extended attribute {name}"


def _aspects(theirs: Entry, ours: Entry) -> list[str]:
    """What differs between two entries, the image's value first."""
    if theirs.kind != ours.kind:
        return [f"{theirs.kind}, not {ours.kind}"]
    found = []
    if theirs.mode != ours.mode:
        found.append(f"mode {theirs.mode:04o}, not {ours.mode:04o}")
    if (theirs.uid, theirs.gid) != (ours.uid, ours.gid):
        found.append(f"owner {theirs.uid}:{theirs.gid}, not {ours.uid}:{ours.gid}")
    if theirs.link != ours.link:
        found.append(f"link to {theirs.link}, not {ours.link}")
    if theirs.size != ours.size:
        found.append(f"{theirs.size} bytes, not {ours.size}")
    elif theirs.sha256 != ours.sha256:
        found.append("content")
    if theirs.source != ours.source:
        found.append("hard link")
    return found
