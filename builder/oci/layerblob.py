"""Writes sorted entries as a layer blob: tar with fixed times and owners, hashed and compressed in one pass.

The bytes depend on the entries and on the constants of `builder.oci.format` only: not on the engine that made the
files, the time, the user, the machine or the number of threads.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tarfile
from collections.abc import Callable, Generator, Iterable

from builder.digest import Digest
from builder.errors import EngineError
from builder.oci.format import LEVEL, MEDIA_TYPES, MTIME, ZSTD
from builder.parallel import ahead
from builder.store.blobs import BlobWriter
from builder.store.records import LayerRecord
from builder.store.store import Store
from builder.unpack.entry import Entry

Progress = Callable[[int], None]
"""Receives the number of tar bytes written since the last call."""

_Piece = tuple[bytes, list[Entry]]
"""Bytes of a tar, and the entries that begin in them."""
_KINDS = {"file": tarfile.REGTYPE, "dir": tarfile.DIRTYPE, "symlink": tarfile.SYMTYPE, "hardlink": tarfile.LNKTYPE}
_GATHER = 1 << 20


def write_layer(
    store: Store,
    entries: Iterable[Entry],
    *,
    compression: str = "zstd",
    threads: int = 1,
    progress: Progress | None = None,
) -> LayerRecord:
    """Write normalised entries as one blob into the store, and a listing of its paths as another blob.

    threads: for the compressor; with more than one, others read the entries and hash the tar. The bytes are the same
    for any number. An error leaves nothing in the store.
    """
    diff = hashlib.sha256()
    size = count = 0
    made = _tar(entries)
    # With more threads: read, hashed and compressed side by side.
    made = ahead(_hashed(ahead(made), diff)) if threads > 1 else _hashed(made, diff)
    opened = contextlib.closing(made)
    with store.writer() as writer, store.writer() as paths, opened as pieces:
        compressor = _compressor(writer, compression, threads)
        for chunk, begun in pieces:
            count += len(begun)
            # In ASCII: a name that is not UTF-8 can be read back.
            lines = (json.dumps([item.path, item.kind, item.mode, item.size, item.link]) for item in begun)
            paths.write("".join(f"{line}\n" for line in lines).encode())
            compressor.write(chunk)
            size += len(chunk)
            if progress is not None:
                progress(len(chunk))
        compressor.finish()
        # Both are complete on disk before one of them is visible.
        writer.flush()
        paths.flush()
        listing_digest = paths.commit()
        blob_size = writer.size
        digest = writer.commit()
    return LayerRecord(
        digest=digest,
        size=blob_size,
        diff_id=Digest.from_hex(diff.hexdigest()),
        tar_size=size,
        media_type=MEDIA_TYPES[compression],
        entries=count,
        listing=listing_digest,
    )


def _hashed(pieces: Iterable[_Piece], diff: hashlib._Hash) -> Generator[_Piece, None, None]:
    for piece in pieces:
        diff.update(piece[0])
        yield piece


def _tar(entries: Iterable[Entry]) -> Generator[_Piece, None, None]:
    """Small pieces are joined: hashing and compressing release the interpreter lock only for larger ones."""
    pending: list[bytes] = []
    begun: list[Entry] = []
    held = 0
    total = 0
    for entry in entries:
        pending.append(_header(entry))
        begun.append(entry)
        held += len(pending[-1])
        if entry.kind == "file":
            assert entry.read is not None
            seen = 0
            for chunk in entry.read():
                seen += len(chunk)
                pending.append(chunk)
                held += len(chunk)
                if held >= _GATHER:
                    total += held
                    yield b"".join(pending), begun
                    pending, begun, held = [], [], 0
            if seen != entry.size:
                raise EngineError(
                    f"{entry.path}: {seen} bytes where the entry says {entry.size}",
                    id="entry-size-mismatch",
                    where=entry.owner,
                )
            padding = -seen % tarfile.BLOCKSIZE
            pending.append(b"\0" * padding)
            held += padding
    total += held
    end = 2 * tarfile.BLOCKSIZE
    end += -(total + end) % tarfile.RECORDSIZE
    pending.append(b"\0" * end)
    yield b"".join(pending), begun


def _header(entry: Entry) -> bytes:
    info = tarfile.TarInfo(entry.path + "/" if entry.kind == "dir" else entry.path)
    info.type = _KINDS[entry.kind]
    info.mode = entry.mode
    info.mtime = MTIME
    info.size = entry.size if entry.kind == "file" else 0
    info.linkname = entry.link
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


class _Compressor:
    """A compressor in front of a blob writer."""

    def __init__(self, writer: BlobWriter, compress: Callable[[bytes], bytes], flush: Callable[[], bytes]) -> None:
        self._writer = writer
        self._compress = compress
        self._flush = flush

    def write(self, chunk: bytes) -> None:
        out = self._compress(chunk)
        if out:
            self._writer.write(out)

    def finish(self) -> None:
        self._writer.write(self._flush())


def _compressor(writer: BlobWriter, compression: str, threads: int) -> _Compressor:
    if compression == "none":
        return _Compressor(writer, lambda chunk: chunk, lambda: b"")
    if compression == "gzip":
        import zlib

        if "ng" in zlib.ZLIB_RUNTIME_VERSION:
            raise EngineError(
                "this Python's zlib is zlib-ng, which compresses to other bytes than zlib",
                id="zlib-ng",
                cause="layer digests are defined with zlib",
                next="build with --compression zstd",
            )
        # wbits 31: a gzip header without name or time (RFC 1952 MTIME 0).
        deflate = zlib.compressobj(6, zlib.DEFLATED, 31)
        return _Compressor(writer, deflate.compress, deflate.flush)
    import zstandard

    if zstandard.ZSTD_VERSION != ZSTD:
        found = ".".join(map(str, zstandard.ZSTD_VERSION))
        raise EngineError(
            f"the Python package zstandard contains libzstd {found}",
            id="libzstd-version",
            cause=f"layer digests are defined with {'.'.join(map(str, ZSTD))}",
            next="pip install --force-reinstall zstandard==0.25.0",
        )
    # threads=0 would select another code path of libzstd with other bytes; any number from 1 gives the same.
    zstd = zstandard.ZstdCompressor(level=LEVEL, threads=max(1, threads), write_content_size=False).compressobj()
    return _Compressor(writer, zstd.compress, zstd.flush)
