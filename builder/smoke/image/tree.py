"""The files of an image with all layers merged, without unpacking it: lookup, symlinks, patterns, content.

Each layer is read once, several layers at a time. The index stays in memory. Files that a check reads are copied to
disk on the way; reading any other file needs a second pass over its layer.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from builder.errors import InvalidError
from builder.smoke.image.index import (
    NOTHING,
    Budget,
    Entry,
    LayerIndex,
    Listener,
    ignore,
    index_layer,
    read_layers,
)
from builder.smoke.image.kept import KeptFiles
from builder.smoke.image.merge import Covered, merge
from builder.smoke.image.opened import LayerBlob, OpenedImage
from builder.smoke.image.scan import ScanOptions

_WILDCARD = frozenset("*?[")
_MOST_PASSES = 16
"""Files that are read although no check named them; each needs a second pass over its layer."""
_STEP, _CHARACTER, _BYTE, _MATCH, _MERGE = 200, 10, 10, 20, 100
_MOST_WORK = 2_000_000_000
"""Characters of paths that are looked at while links are followed; one step counts as _STEP, one character of a path
that is taken apart as _CHARACTER, one byte of a file that a check reads as _BYTE, one path that is compared with a
pattern as _MATCH, and an entry that is merged once more as _MERGE. The most takes seconds."""
LONGEST_PATH = 4096
LONGEST_PATTERN = 1024
"""Characters; the time of fnmatch is quadratic in them."""


class PathNotFound(Exception):
    """A path is not in the layers that were read."""

    def __init__(self, path: str, why: str = "") -> None:
        super().__init__(f"/{path.lstrip('/')} is not in the image{why}")


@dataclass
class ImageTree:
    """Merged view of an image's layers. Paths of entries have no leading slash; arguments may have one.

    layers: those that were read. absent: those that were not, because they are not on this machine or not needed.
    entries: path → entry as a container sees it. covered: entries that hide one of a lower layer. folder: for copies
    of files.
    """

    image: OpenedImage
    layers: list[LayerIndex]
    entries: dict[str, Entry]
    absent: list[LayerBlob]
    covered: list[Covered]
    folder: Path
    _work: int = 0
    _passes: int = 0

    @classmethod
    def of_image(
        cls,
        image: OpenedImage,
        folder: Path,
        keep: Iterable[str] = (),
        scan: ScanOptions = NOTHING,
        only: Sequence[int] | None = None,
        until: Sequence[str] | None = None,
        listener: Listener = ignore,
    ) -> ImageTree:
        """Read an image's layers. keep: patterns (fnmatch) of files to copy to `folder`, for later reading.

        scan: what to extract from files. only: the numbers of the layers to read, from 0; default: all.
        until: read from the top layer down, and stop when all these paths are found. listener: receives each layer.
        Raises InvalidError for a damaged layer.
        """
        short = (pattern.lstrip("/") for pattern in keep if len(pattern) <= LONGEST_PATTERN)
        wanted = "|".join(map(fnmatch.translate, short)) or r"(?!)"
        chosen = [(number, blob) for number, blob in enumerate(image.layers) if only is None or number in only]
        present = [(number, blob) for number, blob in chosen if blob.present]
        absent = [blob for blob in image.layers if not any(blob is other for _, other in present)]
        tree = cls(image, [], {}, absent, [], folder)
        if until is None:
            tree.layers = read_layers(present, wanted, folder, scan, listener)
            tree.entries = merge(tree.layers, tree.covered)
            return tree
        # An upper layer decides what is at a path, and whether the folders on the way are links.
        budget = Budget((blob for _, blob in present), listener)
        for number, blob in reversed(present):
            tree.layers = [budget.take(index_layer(blob, number, re.compile(wanted), folder, scan)), *tree.layers]
            tree._worked(_MERGE * sum(len(layer.entries) for layer in tree.layers))
            tree.entries = merge(tree.layers)
            if all(map(tree.exists, until)):
                tree.absent = []
                break
        return tree

    def get(self, path: str) -> Entry | None:
        """The entry of exactly this path, symlinks not followed."""
        return self.entries.get(path.strip("/"))

    def resolve(self, path: str) -> str:
        """The path with every symlink followed, inside the image. Raises PathNotFound."""
        self._check_length(path)
        found: list[str] = []
        rest = [part for part in reversed(path.split("/")) if part not in ("", ".")]
        hops = 0
        while rest:
            part = rest.pop()
            if part == "..":
                # As in a chroot, the parent of the root is the root.
                if found:
                    found.pop()
                continue
            here = "/".join([*found, part])
            self._worked(_STEP + len(here))
            entry = self.entries.get(here)
            if entry is None:
                raise PathNotFound(path, f" (no /{here})" if here != path.strip("/") else "")
            if entry.kind != "symlink":
                if rest and entry.kind != "dir":
                    raise PathNotFound(path, f" (/{here} is no directory)")
                found.append(part)
                continue
            hops += 1
            if hops > 40:
                raise PathNotFound(path, " (its links form a loop)")
            self._check_length(entry.link)
            if entry.link.startswith("/"):
                found = []
            rest.extend(step for step in reversed(entry.link.split("/")) if step not in ("", "."))
        return "/".join(found)

    def _check_length(self, path: str) -> None:
        """Raises PathNotFound for a path or link that Linux does not follow because it is too long."""
        if len(path) > LONGEST_PATH:
            raise PathNotFound(f"{path[:80]}…", f": a path of {len(path)} characters")
        self._worked(_CHARACTER * len(path))

    def _worked(self, amount: int) -> None:
        """Count characters that are looked at. Raises InvalidError when they are too many."""
        self._work += amount
        if self._work > _MOST_WORK:
            raise InvalidError("the links or files of the image take too long to read", id="image-links-too-many")

    def stat(self, path: str) -> Entry:
        """The entry of a path, symlinks followed. Raises PathNotFound."""
        real = self.resolve(path)
        return self.entries[real] if real else Entry("dir", 0o755, 0, 0, 0, "", 0, "")

    def exists(self, path: str) -> bool:
        """Whether a path leads to an entry, symlinks followed."""
        try:
            self.resolve(path)
        except PathNotFound:
            return False
        return True

    def below(self, prefix: str) -> Iterator[tuple[str, Entry]]:
        """Every entry below a folder, and the folder itself; symlinks are not followed."""
        folder = prefix.strip("/")
        for path, entry in self.entries.items():
            if not folder or path == folder or path.startswith(folder + "/"):
                yield path, entry

    def match(self, pattern: str) -> list[str]:
        """The paths that match an fnmatch pattern, sorted; `*` matches slashes too. None for a very long pattern."""
        if len(pattern) > LONGEST_PATTERN:
            return []
        accept = re.compile(fnmatch.translate(pattern.lstrip("/"))).match
        name = pattern.rpartition("/")[2]
        among = self._names.get(name, ()) if name and _WILDCARD.isdisjoint(name) else self.entries
        self._worked(_MATCH * len(among))
        return sorted(path for path in among if accept(path))

    def named(self, name: str) -> list[str]:
        """The paths of the regular files with this name, in any folder."""
        return [path for path in self._names.get(name, ()) if self.entries[path].kind == "file"]

    def inside(self, folder: str) -> list[str]:
        """The paths directly in a folder, given without links and leading slash."""
        return self._folders.get(folder, [])

    @cached_property
    def _folders(self) -> dict[str, list[str]]:
        folders: dict[str, list[str]] = {}
        for path in self.entries:
            folders.setdefault(path.rpartition("/")[0], []).append(path)
        return folders

    @cached_property
    def _names(self) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {}
        for path in self.entries:
            names.setdefault(path.rpartition("/")[2], []).append(path)
        return names

    def open(self, path: str) -> BinaryIO:
        """The content of a regular file, seekable. Raises PathNotFound, also for a file beyond the bounds of `kept`."""
        entry = self.stat(path)
        if entry.kind != "file":
            raise PathNotFound(path, f" as a file: it is a {entry.kind}")
        layer = next(layer for layer in self.layers if layer.number == entry.layer)
        if entry.source not in layer.kept:
            if not KeptFiles(self.folder).admits(entry.size):
                raise PathNotFound(path, f" as a file that is small enough to be read: it has {entry.size} bytes")
            self._passes += 1
            if self._passes > _MOST_PASSES:
                raise PathNotFound(path, f" as a file that is read: links lead to more than {_MOST_PASSES} others")
            again = index_layer(layer.blob, layer.number, re.compile(re.escape(entry.source) + r"\Z"), self.folder)
            layer.kept.update(again.kept)
        return layer.kept[entry.source].open("rb")

    def read(self, path: str, limit: int = 1 << 20) -> bytes:
        """The beginning of a file, at most `limit` bytes. Raises PathNotFound, and InvalidError for too many bytes."""
        with self.open(path) as file:
            data = file.read(limit)
        # Many links may lead to one file.
        self._worked(_BYTE * len(data))
        return data
