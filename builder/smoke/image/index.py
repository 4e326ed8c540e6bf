"""What is in the layers of an image: each is read once, front to back, several at a time."""

from __future__ import annotations

import multiprocessing
import os
import re
import tarfile
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, cast

from builder.errors import InvalidError
from builder.smoke.image.layerstream import Hashing, LayerStream, clean
from builder.smoke.image.opened import LayerBlob
from builder.smoke.image.scan import Looker, Looks, Object

Kind = Literal["file", "dir", "symlink", "char", "block", "fifo"]
NOTHING = Looks()
_FOR_PROCESSES = 200_000_000
"""bytes of blobs from which on processes are worth their start."""

_KINDS: dict[bytes, Kind] = {
    tarfile.DIRTYPE: "dir",
    tarfile.SYMTYPE: "symlink",
    tarfile.CHRTYPE: "char",
    tarfile.BLKTYPE: "block",
    tarfile.FIFOTYPE: "fifo",
}


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


def read_layers(layers: Sequence[tuple[int, LayerBlob]], wanted: str, folder: Path, looks: Looks) -> list[LayerIndex]:
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
                if target is None or not path:
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


def _keep(stream: LayerStream, member: tarfile.TarInfo, folder: Path) -> Path:
    descriptor, name = tempfile.mkstemp(dir=folder)
    with os.fdopen(descriptor, "wb") as file:
        stream.copy(member, file.write)
    return Path(name)
