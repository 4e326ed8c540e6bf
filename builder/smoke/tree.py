"""The files of an image, all its layers merged, without unpacking it.

Each layer is read once, front to back, several layers at a time. What stays in memory is the index; the content of
files that a check will want is kept aside on disk when it passes by, and fetched by a second pass otherwise.
"""

from __future__ import annotations

import fnmatch
import multiprocessing
import os
import re
import tarfile
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, cast

from builder.errors import InvalidError
from builder.smoke.image import Image, LayerBlob
from builder.smoke.layers import Hashing, LayerStream, clean
from builder.smoke.look import Looker, Looks, Object

Kind = Literal["file", "dir", "symlink", "char", "block", "fifo"]
NOTHING = Looks()
_FOR_PROCESSES = 200_000_000
"""bytes of blobs from which on processes are worth their start."""


class Absent(Exception):
    """A path is not in the layers of the image that are here."""

    def __init__(self, path: str, why: str = "") -> None:
        super().__init__(f"/{path.lstrip('/')} is not in the image{why}")


@dataclass(slots=True)
class Entry:
    """A file of the image. link: what a symlink says. layer: which layer it is from, counted from 0.

    source: the name in that layer that holds the content (another one for a hard link). machine: e_machine of ELF.
    object: what is in an ELF file for aarch64, when that was looked at.
    """

    kind: Kind
    mode: int
    uid: int
    gid: int
    size: int
    link: str
    layer: int
    source: str
    machine: int | None = None
    object: Object | None = None


@dataclass(frozen=True, slots=True)
class Covered:
    """A layer has something where a lower one has something else than it."""

    path: str
    was: str
    below: int
    layer: int


@dataclass
class LayerIndex:
    """The entries of one layer, and what it removes from the layers below. tar_size: bytes when unpacked.

    secrets: (path, what was found). sha256: of the blob, in hexadecimal, when that was asked for.
    """

    blob: LayerBlob
    number: int
    entries: dict[str, Entry] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    opaque: set[str] = field(default_factory=set)
    tar_size: int = 0
    secrets: list[tuple[str, str]] = field(default_factory=list)
    sha256: str = ""
    kept: dict[str, Path] = field(default_factory=dict)


class ImageTree:
    """Merged view of an image. Paths are without leading slash inside, with or without it in questions."""

    def __init__(
        self,
        image: Image,
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


def read_layers(
    layers: Sequence[tuple[int, LayerBlob]], wanted: str, folder: Path, looks: Looks
) -> list[LayerIndex]:
    """Index several layers at once, the largest first: workers then end at about the same time.

    Large layers are read by processes: unpacking them releases the interpreter's lock, looking into them does not.
    """
    order = sorted(layers, key=lambda item: -item[1].size)
    workers = min(len(order), max(2, os.cpu_count() or 2))
    local = all(blob.remote is None for _, blob in order)
    large = sum(blob.size for _, blob in order) > _FOR_PROCESSES
    # A process that has threads cannot safely be copied.
    if local and large and (os.cpu_count() or 1) > 1 and threading.active_count() == 1:
        pool: Executor = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork"))
    else:
        pool = ThreadPoolExecutor(max(1, workers))
    with pool:
        found = [pool.submit(_index, blob, number, wanted, folder, looks) for number, blob in order]
        return sorted((one.result() for one in found), key=lambda layer: layer.number)


def _index(blob: LayerBlob, number: int, wanted: str, folder: Path, looks: Looks) -> LayerIndex:
    return index_layer(blob, number, re.compile(wanted), folder, looks)


def index_layer(
    blob: LayerBlob, number: int, wanted: re.Pattern[str], folder: Path, looks: Looks = NOTHING
) -> LayerIndex:
    """Read one layer once. Files that `wanted` matches are kept in `folder`. Raises InvalidError."""
    index = LayerIndex(blob, number)
    looker = Looker(looks, folder)
    hashing = Hashing(blob.open()) if looks.hash else None
    with LayerStream(cast("BinaryIO", hashing) if hashing else blob.open(), blob.digest) as stream:
        for member in stream:
            path = clean(member.name)
            parent, _, name = path.rpartition("/")
            if name == ".wh..wh..opq":
                index.opaque.add(parent)
            elif name.startswith(".wh."):
                index.removed.add(f"{parent}/{name[4:]}".lstrip("/"))
            elif member.islnk():
                target = index.entries.get(clean(member.linkname))
                if target is None:
                    raise InvalidError(f"a hard link to nothing: {path}", where=blob.digest)
                index.entries[path] = target
            elif path:
                kind = _KINDS.get(member.type, "file")
                entry = Entry(
                    kind, member.mode & 0o7777, member.uid, member.gid, member.size, member.linkname, number, path
                )
                index.entries[path] = entry
                if kind == "file" and wanted.match(path):
                    # A later member of the same name replaces the file, as it does when a layer is unpacked.
                    index.kept[path] = _keep(stream, member, folder)
                    with index.kept[path].open("rb") as file:
                        entry.machine, entry.object = looker.look_kept(file, path, member.size)
                elif kind == "file" and member.size:
                    entry.machine, entry.object = looker.look(stream, member, path)
        index.tar_size = stream.stream.tell()
        stream.finish()
    looker.close()
    index.secrets = looker.secrets
    index.sha256 = hashing.hexdigest() if hashing else ""
    return index


def merge(layers: Iterable[LayerIndex], covered: list[Covered] | None = None) -> dict[str, Entry]:
    """What a container sees: later layers over earlier ones, what they remove removed. covered: gets what is hidden."""
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
            # A directory over a link hides the link and all that it led to, as it does in a container.
            merged[real] = entry
            folders.pop(path, None)
        if replaced:
            _drop(merged, set(), replaced, since=layer.number)
    return merged


def _hides(entry: Entry, below: Entry) -> bool:
    return below.layer < entry.layer and not below.kind == entry.kind == "dir"


def _real(merged: dict[str, Entry], folder: str, known: dict[str, str], layer: int) -> str:
    """Where a folder of a layer really is: through the links that are there; made where it is not."""
    if (place := known.get(folder)) is not None:
        return place
    parent, _, name = folder.rpartition("/")
    above = _real(merged, parent, known, layer)
    place = f"{above}/{name}" if above else name
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


_KINDS: dict[bytes, Kind] = {
    tarfile.DIRTYPE: "dir",
    tarfile.SYMTYPE: "symlink",
    tarfile.CHRTYPE: "char",
    tarfile.BLKTYPE: "block",
    tarfile.FIFOTYPE: "fifo",
}


def _keep(stream: LayerStream, member: tarfile.TarInfo, folder: Path) -> Path:
    descriptor, name = tempfile.mkstemp(dir=folder)
    with os.fdopen(descriptor, "wb") as file:
        stream.copy(member, file.write)
    return Path(name)
