"""The index of a layer: its entries, whiteouts and digest, read in one pass; several layers at a time."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import re
import tarfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, cast

from builder.digest import Digest
from builder.errors import InvalidError
from builder.parallel import every
from builder.smoke.image.kept import KeptFiles
from builder.smoke.image.layerpaths import LayerPaths, ambiguous
from builder.smoke.image.layerstream import RATIO, UNPACKED, HashingStream, LayerStream, member_path, stopping
from builder.smoke.image.opened import LayerBlob
from builder.smoke.image.scan import ElfObject, MemberScanner, ScanOptions
from builder.store.blobs import rereading

Kind = Literal["file", "dir", "symlink", "char", "block", "fifo"]
NOTHING = ScanOptions()
_MEMORY = 256 << 20
_ENTRY = 400
"""bytes in memory that the index of a layer may use, and that one entry uses besides its names."""
_MEMORY_OF_IMAGE = 512 << 20
_FOR_PROCESSES = 200_000_000
"""bytes of blobs; below, processes take longer to start than they save."""

_THREADS = 4
"""Readers in one process: each may need the memory of a zstd window. More do not help, for scanning holds the
interpreter's lock."""

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
    file. object: the tables of an ELF file for aarch64, when ScanOptions.elf asks for them. script: the first line of a
    file that begins with `#!`, without that. sha256: of the content, when ScanOptions.files asks for it and the
    store has no record of the layer: the files of a recorded layer were hashed when the layer was made. mtime: seconds
    since 1970; None for a folder that is no entry of a layer.
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
    script: bytes = b""
    sha256: bytes = b""
    mtime: int | None = None


@dataclass
class LayerIndex:
    """The entries of one layer, and what it removes from the layers below. unpacked: bytes of its tar and of
    compressed files in it.

    root: the entry of the root folder, when the layer has one; it is not among the entries.
    secrets: (path, kind of secret). attributes: (path, name of an extended attribute). digest, diff_id: of the blob and
    of the unpacked blob, None when they were not asked for. compression: zstd, gzip or none. has_table: whether the
    blob has a table of contents, as of zstd:chunked. memory: bytes that the index uses, estimated. kept: copies of
    files by path.
    """

    blob: LayerBlob
    number: int
    entries: dict[str, Entry] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    opaque: set[str] = field(default_factory=set)
    root: Entry | None = None
    unpacked: int = 0
    secrets: list[tuple[str, str]] = field(default_factory=list)
    attributes: list[tuple[str, str]] = field(default_factory=list)
    digest: Digest | None = None
    diff_id: Digest | None = None
    compression: str = "none"
    has_table: bool = False
    memory: int = 0
    kept: dict[str, Path] = field(default_factory=dict)


Listener = Callable[[int, LayerBlob], None]
"""Receives each layer when it was read: its number, from 0, and its blob. It is called from several threads."""


def ignore(number: int, blob: LayerBlob) -> None:
    """A listener that does nothing."""


class Budget:
    """What the layers of an image may use together: memory, and bytes that are unpacked."""

    def __init__(self, blobs: Iterable[LayerBlob], listener: Listener = ignore) -> None:
        self._listener = listener
        self._memory = _MEMORY_OF_IMAGE
        self._bytes = 4 * UNPACKED + RATIO * sum(blob.size for blob in blobs)

    def take(self, layer: LayerIndex) -> LayerIndex:
        """The same layer. Raises InvalidError when it is too much beside those before it."""
        self._memory -= layer.memory
        self._bytes -= layer.unpacked
        if self._memory < 0:
            raise too_many(layer.blob)
        if self._bytes < 0:
            raise InvalidError("the layers unpack to too many bytes", id="layer-too-large", where=layer.blob.digest)
        self._listener(layer.number, layer.blob)
        return layer


def too_many(blob: LayerBlob) -> InvalidError:
    """The error of a layer that has too many entries, beside those below it."""
    return InvalidError("a layer has too many entries", id="layer-entries-too-many", where=blob.digest)


def read_layers(
    layers: Sequence[tuple[int, LayerBlob]],
    wanted: str,
    folder: Path,
    options: ScanOptions,
    listener: Listener = ignore,
) -> list[LayerIndex]:
    """Index several layers at once, the largest first, so that workers end at about the same time.

    Large layers are read by processes, because scanning members holds the interpreter's lock.
    """
    order = sorted(layers, key=lambda item: -item[1].size)
    budget = Budget((blob for _, blob in order), listener)
    workers = min(len(order), max(2, os.cpu_count() or 2))
    local = all(blob.remote is None for _, blob in order)
    large = sum(blob.size for _, blob in order) > _FOR_PROCESSES
    # Forking a process that has threads is not safe.
    if not (local and large and (os.cpu_count() or 1) > 1 and threading.active_count() == 1):

        def read(item: tuple[int, LayerBlob]) -> LayerIndex:
            return budget.take(_index(item[1], item[0], wanted, folder, options))

        return sorted(every(read, order, min(workers, _THREADS), stopping), key=lambda layer: layer.number)
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork")) as pool:
        try:
            jobs = [pool.submit(_index, blob, number, wanted, folder, options) for number, blob in order]
            return sorted((budget.take(job.result()) for job in as_completed(jobs)), key=lambda layer: layer.number)
        except BaseException:
            # After Ctrl-C or SIGTERM, and after a damaged layer, the other workers must not read on. They may be in
            # compiled code, which no flag ends.
            for worker in multiprocessing.active_children():
                worker.kill()
            raise


def _index(blob: LayerBlob, number: int, wanted: str, folder: Path, options: ScanOptions) -> LayerIndex:
    return index_layer(blob, number, re.compile(wanted), folder, options)


def index_layer(
    blob: LayerBlob, number: int, wanted: re.Pattern[str], folder: Path, options: ScanOptions = NOTHING
) -> LayerIndex:
    """Read one layer once, and copy files that `wanted` matches to `folder`, within the bounds of `kept`.

    Raises InvalidError.
    """
    return rereading(lambda: _read_layer(blob, number, wanted, folder, options))


def _read_layer(
    blob: LayerBlob, number: int, wanted: re.Pattern[str], folder: Path, options: ScanOptions
) -> LayerIndex:
    index = LayerIndex(blob, number)
    paths = LayerPaths(blob.digest)
    scanner = MemberScanner(options, folder)
    kept = KeptFiles(folder)
    budget = _MEMORY
    hashing = HashingStream(blob.open()) if options.hash else None
    with LayerStream(cast("BinaryIO", hashing) if hashing else blob.open(), blob.digest, blob.size) as stream:
        if hashing and blob.diff_id is None:
            stream.hash_unpacked()
        for member in stream:
            budget -= _ENTRY + 2 * len(member.name) + len(member.linkname)
            change, path = paths.add(member_path(member.name), folder=member.isdir())
            if budget < paths.memory:
                raise too_many(blob)
            # Also those of a hard link, which change its target, and of the root.
            for key in member.pax_headers:
                if ".xattr." in key:
                    budget -= _ENTRY + len(key)
                    index.attributes.append((path, key.partition(".xattr.")[2]))
            if change == "empties":
                index.opaque.add(path)
            elif change == "removes":
                index.removed.add(path)
            elif member.islnk():
                index.entries[path] = _hard_link(index, path, member)
            else:
                kind = _KINDS.get(member.type, "file")
                mode, mtime = member.mode & 0o7777, int(member.mtime)
                entry = Entry(
                    kind, mode, member.uid, member.gid, member.size, member.linkname, number, path, mtime=mtime
                )
                if not path:
                    index.root = entry
                    continue
                index.entries[path] = entry
                if kind == "file":
                    _read_file(index, entry, stream, member, kept if wanted.match(path) else None, scanner)
        index.memory = _MEMORY - budget + paths.memory
        index.unpacked = stream.stream.tell() + scanner.limit.used
        stream.finish()
        index.diff_id, index.compression = stream.diff_id or blob.diff_id, stream.compression
    scanner.close()
    index.secrets = scanner.secrets
    if hashing:
        index.digest, index.has_table = hashing.digest(), hashing.has_table
    return index


def _hard_link(index: LayerIndex, path: str, member: tarfile.TarInfo) -> Entry:
    """The entry that a hard link leads to."""
    target = index.entries.get(member_path(member.linkname))
    if target is None or target.kind == "dir":
        raise InvalidError(
            f"the target of a hard link is not in the layer: {path}",
            id="layer-hard-link-broken",
            where=index.blob.digest,
        )
    if (target.mode, target.uid, target.gid) != (member.mode & 0o7777, member.uid, member.gid):
        raise ambiguous(f"a hard link of another mode or owner than its file: {path}", index.blob.digest)
    return target


def _read_file(
    index: LayerIndex,
    entry: Entry,
    stream: LayerStream,
    member: tarfile.TarInfo,
    kept: KeptFiles | None,
    scan: MemberScanner,
) -> None:
    """Scan a file. kept: copies it to disk."""
    if scan.options.files and index.blob.diff_id is None:
        stream.stream.member = hashlib.sha256()
    path = entry.source
    if kept is not None and kept.admits(member.size):
        index.kept[path] = kept.copy(stream, member)
        with index.kept[path].open("rb") as file:
            entry.machine, entry.object = scan.scan_copy(file, path)
    else:
        entry.machine, entry.object = scan.scan(stream, member, path)
    entry.script = scan.script
    if stream.stream.member is not None:
        stream.stream.seek(member.offset_data + member.size)
        entry.sha256 = stream.stream.member.digest()
        stream.stream.member = None
