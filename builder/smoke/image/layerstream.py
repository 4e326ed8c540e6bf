"""A layer blob as a stream of tar members: gzip, zstd or plain, read once, without unpacking."""

from __future__ import annotations

import contextlib
import hashlib
import io
import tarfile
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from builder.digest import Digest
from builder.errors import InvalidError
from builder.smoke.image.layerpaths import ambiguous
from builder.smoke.image.zstdframes import Frames
from builder.unpack.entry import UnpackError, raw
from builder.unpack.tar import Archive

_CHUNK = 1 << 20
_MOST_AT_ONCE = 32 << 20
"""bytes; the most that is read in one piece."""
_LONGEST_PATH, _LONGEST_NAME = 4096, 255
"""Characters of a path, and bytes of one name in it: Linux has no longer ones, and engines cannot unpack them."""
_WINDOW = 32 << 20
"""bytes of memory for one zstd stream: what the encoders of container engines use at most."""
LARGEST = 64 << 30
UNPACKED = 256 << 20
RATIO = 100
"""bytes of an unpacked layer: LARGEST at most, and not more than UNPACKED and RATIO times the size of its blob."""
_COMPRESSED = 32 << 10
_GZIP = 16 + zlib.MAX_WBITS
_FOOTER = 51
"""bytes; the footer of an eStargz blob. That of zstd:chunked has its name in the last 8 bytes."""
_stop = threading.Event()
"""Whether all readers of layers end."""
ZSTD = b"\x28\xb5\x2f\xfd"
"""The magic number of a zstd frame."""


@contextlib.contextmanager
def stopping() -> Iterator[None]:
    """While this lasts, every read of a layer ends with InterruptedError."""
    _stop.set()
    try:
        yield
    finally:
        _stop.clear()


class _Source(Protocol):
    def readinto(self, buffer: Any, /) -> int | None: ...


class ForwardStream(io.RawIOBase):
    """A forward-only stream: a seek reads and discards.

    seen: a hash that gets all bytes, or None; member: the same for those that are taken. most: bytes that may be read.
    """

    def __init__(self, source: _Source, damage: type[Exception] = OSError) -> None:
        self.seen: Any = None
        self.member: Any = None
        self.most = LARGEST
        self._source = source
        self._damage = damage
        self._buffer = bytearray(_CHUNK)
        self._view = memoryview(self._buffer)
        self._start = self._end = self._position = self._total = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return b"".join(iter(lambda: self.read(_CHUNK), b""))
        if size > _MOST_AT_ONCE:
            raise InvalidError(f"the layer is not readable: a header of {size} bytes", id="layer-unreadable")
        if size <= self._end - self._start:
            return bytes(self._take(size))
        parts = []
        while size and (taken := self._take(size)):
            parts.append(bytes(taken))
            size -= len(taken)
        return b"".join(parts)

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence != 0 or offset < self._position:
            raise io.UnsupportedOperation("this stream only goes forward")
        while self._position < offset:
            if not self._take(offset - self._position):
                break
        return self._position

    def copy(self, size: int, write: Any) -> None:
        """Pass the next `size` bytes to `write` in pieces. Raises InvalidError when the stream ends before."""
        while size:
            taken = self._take(size)
            if not taken:
                raise InvalidError("the layer ends inside a file", id="layer-truncated")
            write(taken)
            size -= len(taken)

    def _take(self, most: int) -> memoryview:
        if self._start == self._end:
            try:
                self._start, self._end = 0, self._source.readinto(self._view) or 0
            except (OSError, EOFError, zlib.error, self._damage) as error:
                raise InvalidError(f"the layer is not readable: {error}", id="layer-unreadable") from error
            self._total += self._end
            if self._total > self.most:
                raise InvalidError(f"a layer unpacks to more than {self.most} bytes", id="layer-too-large")
            if _stop.is_set():
                raise InterruptedError("the reader of a layer was stopped")
            if self.seen is not None:
                self.seen.update(self._view[: self._end])
        stop = min(self._end, self._start + most)
        taken = self._view[self._start : stop]
        if self.member is not None:
            self.member.update(taken)
        self._position += stop - self._start
        self._start = stop
        return taken


class HashingStream(io.RawIOBase):
    """A stream that hashes what is read from it. end: the last bytes that were read."""

    def __init__(self, source: BinaryIO) -> None:
        self.end = b""
        self._source = source
        self._seen = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        count = cast("io.RawIOBase", self._source).readinto(buffer) or 0
        data = memoryview(buffer)[:count]
        self._seen.update(data)
        self.end = (self.end + bytes(data[-_FOOTER:]))[-_FOOTER:]
        return count

    def digest(self) -> Digest:
        """The digest of everything that was read so far."""
        return Digest.from_hex(self._seen.hexdigest())

    @property
    def has_table(self) -> bool:
        """Whether the blob, once it was read, ends with the place of a table of contents: zstd:chunked, eStargz."""
        return self.end[-8:].lower() == b"gnulinux" or b"STARGZ" in self.end

    def close(self) -> None:
        self._source.close()
        super().close()


class LayerStream:
    """A layer blob (tar, plain or compressed with gzip or zstd) read once, front to back.

    Iterating yields tarfile's members; `copy` and `head` read the content of the current member. compression: zstd,
    gzip or none, by the first bytes.
    """

    def __init__(self, source: Path | BinaryIO, where: str = "", size: int | None = None) -> None:
        """source: the blob, or a stream of it. where: its name in errors. size: of the blob, in bytes."""
        self._where = where or str(source)
        opened = source.open("rb") if isinstance(source, Path) else source
        self._file: io.BufferedReader[Any] = io.BufferedReader(cast("io.RawIOBase", opened), _CHUNK)
        magic = self._file.peek(4)[:4]
        self.compression = "zstd" if magic == ZSTD else "gzip" if magic[:2] == b"\x1f\x8b" else "none"
        self.stream = _decompress(self._file, self.compression)
        if size is not None:
            self.stream.most = min(LARGEST, UNPACKED + RATIO * size)

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        try:
            yield from Archive(self.stream, "the layer")
        except UnpackError as error:
            if error.id != "tar-ambiguous":
                raise InvalidError(str(error), id="layer-unreadable", where=self._where) from error
            raise ambiguous(str(error), self._where) from error

    def copy(self, member: tarfile.TarInfo, write: Any) -> None:
        """Pass the member's content to `write`, in pieces."""
        self.stream.seek(member.offset_data)
        self.stream.copy(member.size, write)

    def head(self, member: tarfile.TarInfo, size: int) -> bytes:
        """The first bytes of the member's content; the rest is what `stream` reads next."""
        return self.stream.read(min(size, member.size))

    def hash_unpacked(self) -> None:
        """Hash everything that is unpacked from now on; for `diff_id`."""
        self.stream.seen = hashlib.sha256()

    def finish(self) -> None:
        """Read the blob to its end, so that a HashingStream below has hashed all of it, and `diff_id` is complete."""
        if self.stream.seen is not None:
            self.stream.seek(LARGEST)
        while self._file.read(_CHUNK):
            pass

    @property
    def diff_id(self) -> Digest | None:
        """The digest of the unpacked blob, once `finish` was called; None without `hash_unpacked`."""
        seen = self.stream.seen
        return Digest.from_hex(seen.hexdigest()) if seen is not None else None

    def close(self) -> None:
        """Close the blob."""
        self._file.close()

    def __enter__(self) -> LayerStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _decompress(file: io.BufferedReader[Any], compression: str) -> ForwardStream:
    if compression == "zstd":
        import zstandard

        frames = cast("BinaryIO", Frames(file))
        reader = zstandard.ZstdDecompressor(max_window_size=_WINDOW).stream_reader(
            frames, read_size=_CHUNK, read_across_frames=True
        )
        return ForwardStream(reader, zstandard.ZstdError)
    if compression == "gzip":
        return ForwardStream(_Gunzip(file))
    return ForwardStream(file)


class _Gunzip:
    """Decompresses gzip as Go does: several members are one stream, and nothing may come after the last one."""

    def __init__(self, file: io.BufferedReader[Any]) -> None:
        self._file = file
        self._inflate = zlib.decompressobj(_GZIP)
        self._input = b""

    def readinto(self, buffer: Any, /) -> int:
        while True:
            more = self._input or self._file.read(_COMPRESSED)
            if self._inflate.eof:
                if not more:
                    return 0
                self._inflate = zlib.decompressobj(_GZIP)
            data = self._inflate.decompress(more, len(buffer))
            self._input = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            if data:
                buffer[: len(data)] = data
                return len(data)
            if not more and not self._inflate.eof:
                raise EOFError("the gzip stream is cut")


def member_path(name: str) -> str:
    """The name of a tar member as a path without leading slash; "" is the root.

    Raises InvalidError for `..`, and for a path or a name in it that is longer than Linux has them.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")] if len(name) <= _LONGEST_PATH else [name]
    if len(name) > _LONGEST_NAME // 4 and any(len(raw(part)) > _LONGEST_NAME for part in parts):
        raise InvalidError(f"a layer has a path that is too long: {name[:80]}…", id="layer-path-long")
    if ".." in parts:
        raise InvalidError(f"a layer has a path outside the image: {name}", id="layer-path-outside")
    return "/".join(parts)
