"""The files of an image, all its layers merged, without unpacking it.

Each layer is read once, front to back, several layers at a time. What stays in memory is the index; the content of
files that a check will want is kept aside on disk when it passes by, and fetched by a second pass otherwise.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from builder.smoke.image.index import NOTHING, Entry, index_layer, read_layers
from builder.smoke.image.merge import Covered, merge
from builder.smoke.image.opened import OpenedImage
from builder.smoke.image.scan import Looks


class Absent(Exception):
    """A path is not in the layers of the image that are here."""

    def __init__(self, path: str, why: str = "") -> None:
        super().__init__(f"/{path.lstrip('/')} is not in the image{why}")


class ImageTree:
    """Merged view of an image. Paths are without leading slash inside, with or without it in questions."""

    def __init__(
        self,
        image: OpenedImage,
        folder: Path,
        keep: Iterable[str] = (),
        looks: Looks = NOTHING,
        only: Sequence[int] | None = None,
        until: Sequence[str] | None = None,
    ) -> None:
        """Index the image. keep: patterns (fnmatch) of files whose content is wanted; folder: where that is put.

        looks: what to look at in files as they pass by. only: the layers to read, counted from 0; all by default.
        until: read from the top layer down, and no further than it takes to find all these paths.
        """
        self.image = image
        self._folder = folder
        wanted = "|".join(fnmatch.translate(pattern.lstrip("/")) for pattern in keep) or r"(?!)"
        chosen = [(number, blob) for number, blob in enumerate(image.layers) if only is None or number in only]
        present = [(number, blob) for number, blob in chosen if blob.present]
        self.absent = [blob for blob in image.layers if not any(blob is other for _, other in present)]
        self.covered: list[Covered] = []
        if until is None:
            self.layers = read_layers(present, wanted, folder, looks)
            self.entries = merge(self.layers, self.covered)
            return
        # An upper layer decides what is at a path, and whether the folders on the way are links.
        self.layers, self.entries = [], {}
        for number, blob in reversed(present):
            self.layers = [index_layer(blob, number, re.compile(wanted), folder, looks), *self.layers]
            self.entries = merge(self.layers)
            if all(map(self._found, until)):
                self.absent = []
                return

    def _found(self, path: str) -> bool:
        try:
            self.resolve(path)
        except Absent:
            return False
        return True

    def get(self, path: str) -> Entry | None:
        """The entry of exactly this path, links not followed."""
        return self.entries.get(path.strip("/"))

    def resolve(self, path: str) -> str:
        """The path with every symlink followed, inside the image. Raises Absent."""
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
            entry = self.entries.get(here)
            if entry is None:
                raise Absent(path, f" (no /{here})" if here != path.strip("/") else "")
            if entry.kind != "symlink":
                if rest and entry.kind != "dir":
                    raise Absent(path, f" (/{here} is no directory)")
                found.append(part)
                continue
            hops += 1
            if hops > 40:
                raise Absent(path, " (its links form a loop)")
            if entry.link.startswith("/"):
                found = []
            rest.extend(step for step in reversed(entry.link.split("/")) if step not in ("", "."))
        return "/".join(found)

    def stat(self, path: str) -> Entry:
        """The entry that a path leads to, links followed. Raises Absent."""
        real = self.resolve(path)
        return self.entries[real] if real else Entry("dir", 0o755, 0, 0, 0, "", 0, "")

    def below(self, prefix: str) -> Iterator[tuple[str, Entry]]:
        """Every entry below a folder (which itself is included), links not followed."""
        folder = prefix.strip("/")
        for path, entry in self.entries.items():
            if not folder or path == folder or path.startswith(folder + "/"):
                yield path, entry

    def match(self, pattern: str) -> list[str]:
        """The paths that an fnmatch pattern describes, sorted; `*` matches slashes too."""
        accept = re.compile(fnmatch.translate(pattern.lstrip("/"))).match
        return sorted(path for path in self.entries if accept(path))

    def open(self, path: str) -> BinaryIO:
        """The content of a regular file, seekable. Raises Absent."""
        entry = self.stat(path)
        if entry.kind != "file":
            raise Absent(path, f" as a file: it is a {entry.kind}")
        layer = next(layer for layer in self.layers if layer.number == entry.layer)
        if entry.source not in layer.kept:
            again = index_layer(layer.blob, layer.number, re.compile(re.escape(entry.source) + r"\Z"), self._folder)
            layer.kept.update(again.kept)
        return layer.kept[entry.source].open("rb")

    def read(self, path: str, limit: int = 1 << 20) -> bytes:
        """The beginning of a file, at most `limit` bytes. Raises Absent."""
        with self.open(path) as file:
            return file.read(limit)
