"""The index of a layer: its entries, whiteouts and digest, read in one pass; several layers at a time."""

from __future__ import annotations

import multiprocessing
import os
import re
import tarfile
import threading
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, cast

from builder.digest import Digest
from builder.errors import InvalidError
from builder.smoke.image.kept import KeptFiles
from builder.smoke.image.layerpaths import LayerPaths, ambiguous
from builder.smoke.image.layerstream import HashingStream, LayerStream, member_path
from builder.smoke.image.opened import LayerBlob
from builder.smoke.image.scan import ElfObject, MemberScanner, ScanOptions

Kind = Literal["file", "dir", "symlink", "char", "block", "fifo"]
NOTHING = ScanOptions()
_FOR_PROCESSES = 200_000_000
"""bytes of blobs; below, processes take longer to start than they save."""

_KINDS: dict[bytes, Kind] = {
    tarfile.DIRTYPE: "dir",
    tarfile.SYMTYPE: "symlink",
    tarfile.CHRTYPE: "char",
    tarfile.BLKTYPE: "block",
    tarfile.FIFOTYPE: "fifo",
}


@dataclass(slots=True)
class Entry:
    """An entry of a layer. link: the target of a symlink. layer: the number of its layer, from 0.

    source: the path in that layer that holds the content (another path for a hard link). machine: e_machine of an ELF
    file. object: the tables of an ELF file for aarch64, when ScanOptions.elf asks for them.
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
    object: ElfObject | None = None


@dataclass
class LayerIndex:
    """The entries of one layer, and what it removes from the layers below. tar_size: bytes when unpacked.

    secrets: (path, kind of secret). digest, diff_id: of the blob and of the unpacked blob, None when they were not
    asked for. compression: zstd, gzip or none. kept: copies of files by path.
    """

    blob: LayerBlob
    number: int
    entries: dict[str, Entry] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    opaque: set[str] = field(default_factory=set)
    tar_size: int = 0
    secrets: list[tuple[str, str]] = field(default_factory=list)
    digest: Digest | None = None
    diff_id: Digest | None = None
    compression: str = "none"
    kept: dict[str, Path] = field(default_factory=dict)


def read_layers(
    layers: Sequence[tuple[int, LayerBlob]], wanted: str, folder: Path, options: ScanOptions
) -> list[LayerIndex]:
    """Index several layers at once, the largest first, so that workers end at about the same time.

    Large layers are read by processes, because scanning members holds the interpreter's lock.
    """
    order = sorted(layers, key=lambda item: -item[1].size)
    workers = min(len(order), max(2, os.cpu_count() or 2))
    local = all(blob.remote is None for _, blob in order)
    large = sum(blob.size for _, blob in order) > _FOR_PROCESSES
    # Forking a process that has threads is not safe.
    if local and large and (os.cpu_count() or 1) > 1 and threading.active_count() == 1:
        pool: Executor = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork"))
    else:
        pool = ThreadPoolExecutor(max(1, workers))
    with pool:
        found = [pool.submit(_index, blob, number, wanted, folder, options) for number, blob in order]
        return sorted((future.result() for future in found), key=lambda layer: layer.number)


def _index(blob: LayerBlob, number: int, wanted: str, folder: Path, options: ScanOptions) -> LayerIndex:
    return index_layer(blob, number, re.compile(wanted), folder, options)


def index_layer(
    blob: LayerBlob, number: int, wanted: re.Pattern[str], folder: Path, options: ScanOptions = NOTHING
) -> LayerIndex:
    """Read one layer once, and copy files that `wanted` matches to `folder`, within the bounds of `kept`.

    Raises InvalidError.
    """
    index = LayerIndex(blob, number)
    paths = LayerPaths(blob.digest)
    scanner = MemberScanner(options, folder)
    kept = KeptFiles(folder)
    hashing = HashingStream(blob.open()) if options.hash else None
    with LayerStream(cast("BinaryIO", hashing) if hashing else blob.open(), blob.digest) as stream:
        if hashing and blob.diff_id is None:
            stream.hash_unpacked()
        for member in stream:
            change, path = paths.add(member_path(member.name), folder=member.isdir())
            if change == "empties":
                index.opaque.add(path)
            elif change == "removes":
                index.removed.add(path)
            elif member.islnk():
                target = index.entries.get(member_path(member.linkname))
                if target is None or target.kind == "dir":
                    raise InvalidError(
                        f"the target of a hard link is not in the layer: {path}",
                        id="layer-hard-link-broken",
                        where=blob.digest,
                    )
                if (target.mode, target.uid, target.gid) != (member.mode & 0o7777, member.uid, member.gid):
                    raise ambiguous(f"a hard link of another mode or owner than its file: {path}", blob.digest)
                index.entries[path] = target
            elif path:
                kind = _KINDS.get(member.type, "file")
                entry = Entry(
                    kind, member.mode & 0o7777, member.uid, member.gid, member.size, member.linkname, number, path
                )
                index.entries[path] = entry
                if kind == "file" and wanted.match(path) and kept.admits(member.size):
                    index.kept[path] = kept.copy(stream, member)
                    with index.kept[path].open("rb") as file:
                        entry.machine, entry.object = scanner.scan_copy(file, path, member.size)
                elif kind == "file" and member.size:
                    entry.machine, entry.object = scanner.scan(stream, member, path)
        index.tar_size = stream.stream.tell()
        stream.finish()
        index.diff_id, index.compression = stream.diff_id or blob.diff_id, stream.compression
    scanner.close()
    index.secrets = scanner.secrets
    index.digest = hashing.digest() if hashing else None
    return index
