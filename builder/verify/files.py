"""In which files two layers, or two images, differ."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from builder.smoke.image.index import Entry, LayerIndex, index_layer
from builder.smoke.image.layerstream import LayerStream, member_path
from builder.smoke.image.opened import LayerBlob
from builder.smoke.image.scan import ScanOptions
from builder.store.blobs import disk_error, rereading

_NOTHING = re.compile(r"(?!)")
_TIME = "modification time"
_CONTENT = ("content", " bytes, not ")
_LARGEST = 1 << 30
_MOST = 2 << 30
"""Bytes of a file whose content is compared, and of all such files of a layer."""


@dataclass(frozen=True)
class FileDifference:
    """A path at which two layers or images differ, and in what."""

    path: str
    aspects: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.path}: {', '.join(self.aspects)}"

    @property
    def only_time(self) -> bool:
        """Whether nothing but the modification time differs."""
        return all(text.startswith(_TIME) for text in self.aspects)

    @property
    def in_content(self) -> bool:
        """Whether two regular files have other bytes."""
        return any(text == _CONTENT[0] or _CONTENT[1] in text for text in self.aspects)


def read_layer(blob: LayerBlob) -> LayerIndex:
    """The entries of a layer with the hashes of its files, and its diff_id, read and not taken from a record.

    Raises InvalidError for a layer that engines may read in different ways, NetworkError and PinError.
    """
    options = ScanOptions(hash=True, files=True)
    with tempfile.TemporaryDirectory() as unused:
        return index_layer(replace(blob, diff_id=None), 0, _NOTHING, Path(unused), options)


def differing_files(
    first: LayerIndex, second: LayerIndex, names: tuple[str, str] = ("the image", "the rebuilt layer")
) -> Iterator[FileDifference]:
    """Each path at which two layers differ, sorted by path. names: what the two are called."""
    yield from differing_entries(first.entries, second.entries, names)
    yield from differing_beside((first,), (second,))


def differing_beside(first: Sequence[LayerIndex], second: Sequence[LayerIndex]) -> Iterator[FileDifference]:
    """In what some layers differ from others besides their entries: deletions, and names of extended attributes."""
    deleted = [{path for layer in side for path in (*layer.removed, *layer.opaque)} for side in (first, second)]
    for path in sorted(deleted[0] ^ deleted[1]):
        yield FileDifference(path, ("deletes files of lower layers, in one of the two only",))
    named = [{pair for layer in side for pair in layer.attributes} for side in (first, second)]
    for path, name in sorted(named[0] ^ named[1]):
        yield FileDifference(path, (f"extended attribute {name}",))


def differing_entries(
    first: Mapping[str, Entry], second: Mapping[str, Entry], names: tuple[str, str]
) -> Iterator[FileDifference]:
    """Each path at which two sets of entries differ, sorted by path."""
    for path in sorted(first.keys() | second.keys()):
        one, other = first.get(path), second.get(path)
        if one is other:
            continue
        if one is None or other is None:
            yield FileDifference(path, (f"only in {names[one is None]}",))
        elif aspects := _aspects(one, other):
            yield FileDifference(path, tuple(aspects))


def other_order(first: LayerIndex, second: LayerIndex) -> str | None:
    """The first path of the first layer that has another place in the second; for layers of the same files."""
    return next((one for one, other in zip(first.entries, second.entries, strict=False) if one != other), None)


def extract(blob: LayerBlob, paths: Collection[str], folder: Path) -> dict[str, Path]:
    """Copies of regular files of a layer, by path, in one pass: files of at most 1 GiB, and 2 GiB of all.

    Raises InvalidError, NetworkError, PinError, EngineError for a full disk.
    """

    def read() -> dict[str, Path]:
        found: dict[str, Path] = {}
        left = _MOST
        with LayerStream(blob.open(), blob.digest, blob.size) as stream:
            for member in stream:
                path = member_path(member.name)
                if path in paths and path not in found and member.isreg() and member.size <= min(_LARGEST, left):
                    left -= member.size
                    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                        stream.copy(member, file.write)
                    found[path] = Path(file.name)
                    if len(found) == len(paths):
                        break
        return found

    try:
        return rereading(read)
    except OSError as error:
        raise disk_error(error, folder) from error


def _aspects(one: Entry, other: Entry) -> list[str]:
    """What differs between two entries, the first one's value first."""
    if one.kind != other.kind:
        return [f"{one.kind}, not {other.kind}"]
    found = []
    if one.mode != other.mode:
        found.append(f"mode {one.mode:04o}, not {other.mode:04o}")
    if (one.uid, one.gid) != (other.uid, other.gid):
        found.append(f"owner {one.uid}:{one.gid}, not {other.uid}:{other.gid}")
    if one.link != other.link:
        found.append(f"link to {one.link}, not {other.link}")
    if one.size != other.size:
        found.append(f"{one.size} bytes, not {other.size}")
    elif one.sha256 and other.sha256 and one.sha256 != other.sha256:
        found.append("content")
    elif bool(one.sha256) != bool(other.sha256):
        # The file of a layer that both images have is not hashed.
        found.append("in another layer")
    if one.source != other.source:
        found.append("hard link")
    # None: a folder that no layer has as an entry.
    if one.mtime != other.mtime and None not in (one.mtime, other.mtime):
        found.append(f"{_TIME} {_stamp(one.mtime)}, not {_stamp(other.mtime)}")
    return found


def _stamp(seconds: int | None) -> str:
    try:
        return datetime.fromtimestamp(seconds or 0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(seconds)
