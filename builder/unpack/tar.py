"""Reads tar archives as containerd does, and refuses what two programs read differently.

The reference is Go's archive/tar, with which containerd, docker, buildah and umoci unpack layers. Python's tarfile and
GNU tar read other names and sizes out of some archives. Those archives are refused, so that the files that are checked
are the files that run.
"""

from __future__ import annotations

import functools
import re
import struct
import tarfile
from collections.abc import Iterator
from typing import Protocol

from .entry import CHUNK, UnpackError

_BLOCK = tarfile.BLOCKSIZE
_LONGEST_EXTENSION = 1 << 20
"""bytes; the limit of Go's archive/tar for extended headers and long names."""
_MOST_RECORDS = 3_000_000
"""Records of all extended headers of an archive; each takes as long as two hundred bytes of a file."""
_NUMBER = re.compile(rb" *([0-7]*)[ \0]*")
_DECIMAL = re.compile(rb"[0-9]{1,18}")
_FIELDS = struct.Struct("100s8s8s8s12s12s8s1s100s8s64s8s8s155s12s")
"""name mode uid gid size mtime checksum type linkname magic+version uname+gname devmajor devminor prefix rest."""
_POSIX, _GNU, _V7 = b"ustar\x0000", b"ustar  \0", bytes(8)
_FILE_TYPES = {
    # A member's type: the same type in the mode of a file (S_IFMT), which docker writes as well.
    tarfile.REGTYPE: 0o100000,
    tarfile.LNKTYPE: None,
    tarfile.SYMTYPE: 0o120000,
    tarfile.CHRTYPE: 0o020000,
    tarfile.BLKTYPE: 0o060000,
    tarfile.DIRTYPE: 0o040000,
    tarfile.FIFOTYPE: 0o010000,
}
_LONG_NAMES = {tarfile.GNUTYPE_LONGNAME: b"path", tarfile.GNUTYPE_LONGLINK: b"linkpath"}
_EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, *_LONG_NAMES)
_REPLACED = (b"path", b"linkpath", b"size", b"uid", b"gid")
"""The records of an extended header that replace fields of the header."""


class Stream(Protocol):
    """An uncompressed archive; it need not seek backwards. `read` returns less than asked for only at the end."""

    def read(self, size: int, /) -> bytes: ...
    def seek(self, offset: int, /) -> int: ...
    def tell(self) -> int: ...


class Archive:
    """The members of an archive, in its order.

    While a member is the current one, the stream stands at its content, which need not be read. Members are tarfile's,
    with every field resolved: the type of a file is REGTYPE; `linkname` is empty unless it is a link; `pax_headers`
    holds the member's extended records. comment: of a global header; git writes the commit there.

    Iterating raises UnpackError: `archive-damaged`, or `tar-ambiguous` for what programs read differently.
    """

    def __init__(self, stream: Stream, owner: str, *, may_comment: bool = False) -> None:
        """owner: the archive's name in errors. may_comment: a global header with nothing but a comment is no error.

        Container engines remove a file that has the name of a global header.
        """
        self._may_comment = may_comment
        self.comment: str | None = None
        self._stream = stream
        self._owner = owner
        self._name = ""
        self._records_left = _MOST_RECORDS

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        start = self._stream.tell()
        before: dict[bytes, dict[bytes, bytes]] = {}
        while (block := self._block(start)) is not None:
            member = self._header(block)
            content = start + _BLOCK
            if member.type in _EXTENDED:
                records = self._extension(member)
                if member.type in before or (before and tarfile.XHDTYPE in (member.type, *before)):
                    raise self._ambiguous("several extended headers before one member")
                if member.type != tarfile.XGLTYPE:
                    before[member.type] = records
                elif before or records.keys() - {b"comment"} or not self._may_comment:
                    raise self._ambiguous("a global header")
                else:
                    self.comment = records.get(b"comment", b"").decode("utf-8", "replace")
                start = content + _padded(member.size)
                continue
            for records in before.values():
                self._extend(member, records)
            before = {}
            self._check(member)
            member.offset, member.offset_data = start, content
            start = content + _padded(member.size)
            yield member
        if before:
            raise self._damaged("an extended header without a member after it")

    def _block(self, start: int) -> bytes | None:
        """The header at `start`; None at the end of the archive, after which there may be nothing but zeros."""
        self._stream.seek(start)
        block = self._stream.read(_BLOCK)
        if len(block) < _BLOCK:
            raise self._damaged("it ends without the two empty blocks that end an archive")
        if block.count(0) < _BLOCK:
            return block
        while chunk := self._stream.read(CHUNK):
            if chunk.count(0) < len(chunk):
                raise self._ambiguous("data after the end of the archive")
        return None

    def _header(self, block: bytes) -> tarfile.TarInfo:
        (
            name, mode, uid, gid, size, mtime, checksum, kind, link, magic, _, major, minor, prefix, rest,
        ) = _FIELDS.unpack(block)  # fmt: skip
        if _octal(checksum) != sum(block) - sum(checksum) + 8 * ord(" "):
            raise self._damaged("the checksum of a header is wrong")
        name, prefix = self._text(name), self._text(prefix)
        if magic not in (_POSIX, _GNU, _V7):
            raise self._ambiguous(f"a header of an unknown format, {magic!r}")
        if rest.strip(b"\0") or (prefix and magic != _POSIX):
            # GNU's own format has times and the map of a sparse file there, tarfile reads a prefix of the name.
            raise self._ambiguous("fields that its format does not have")
        member = tarfile.TarInfo((prefix + b"/" + name if prefix else name).decode("utf-8", "surrogateescape"))
        member.type = tarfile.REGTYPE if kind == tarfile.AREGTYPE else kind
        self._name = member.name
        member.mode = self._number(mode, "mode")
        member.uid = self._number(uid, "user")
        member.gid = self._number(gid, "group")
        member.size = self._number(size, "size")
        if mtime[0] != 0xFF:  # negative: a time before 1970
            member.mtime = self._number(mtime, "time")
        member.devmajor = self._number(major, "device")
        member.devminor = self._number(minor, "device")
        member.linkname = self._text(link).decode("utf-8", "surrogateescape")
        return member

    def _number(self, field: bytes, what: str) -> int:
        octal = _octal(field)
        if octal is not None:
            return octal
        value = int.from_bytes(field[1:], "big")
        if field[0] != 0x80 or value >= 1 << 62:  # the end of the content is a number too
            raise self._ambiguous(f"a {what} that is not a number in octal or base 256, {field!r}")
        return value

    def _text(self, field: bytes) -> bytes:
        text, _, rest = field.partition(b"\0")
        if rest.strip(b"\0"):
            raise self._ambiguous(f"data after the end of a name, {field!r}")
        return text

    def _extension(self, member: tarfile.TarInfo) -> dict[bytes, bytes]:
        """The records of an extended header; GNU's long names are written as such records."""
        if member.size > _LONGEST_EXTENSION:
            raise self._ambiguous(f"an extended header of {member.size} bytes")
        data = self._stream.read(member.size)
        if len(data) < member.size:
            raise self._damaged("it ends within an extended header")
        if member.type not in _LONG_NAMES:
            return self._records(data)
        name = data.rstrip(b"\0")
        if not name or b"\0" in name:
            raise self._ambiguous("a long name that is empty or holds a NUL")
        return {_LONG_NAMES[member.type]: name}

    def _records(self, data: bytes) -> dict[bytes, bytes]:
        """The records `LENGTH KEY=VALUE\\n` of an extended header (POSIX.1-2001, pax)."""
        records: dict[bytes, bytes] = {}
        place = 0
        while place < len(data):
            length, space, _ = data[place : place + 21].partition(b" ")
            size = int(length) if _DECIMAL.fullmatch(length) and space else 0
            key, equals, value = data[place + len(length) + 1 : place + size].partition(b"=")
            if not len(length) + 1 < size <= len(data) - place or not key or not equals or value[-1:] != b"\n":
                raise self._ambiguous("a malformed record in an extended header")
            place, value = place + size, value[:-1]
            if key in records or b"\0" in key or (key in _REPLACED and (not value or b"\0" in value)):
                raise self._ambiguous(f"an extended header with {key!r} twice, empty or with a NUL")
            if key.startswith(b"GNU.") or (
                key == b"hdrcharset" and value not in (b"BINARY", b"ISO-IR 10646 2000 UTF-8")
            ):
                raise self._ambiguous(f"an extended header with {key!r}")
            records[key] = value
        self._records_left -= len(records)
        if self._records_left < 0:
            raise self._damaged(f"more than {_MOST_RECORDS} records in extended headers")
        return records

    def _extend(self, member: tarfile.TarInfo, records: dict[bytes, bytes]) -> None:
        texts = {key: value.decode("utf-8", "surrogateescape") for key, value in records.items()}
        for key in (b"size", b"uid", b"gid"):
            if key in records and not _DECIMAL.fullmatch(records[key]):
                raise self._ambiguous(f"an extended header with the {key.decode()} {records[key]!r}")
        member.name = texts.get(b"path", member.name)
        member.linkname = texts.get(b"linkpath", member.linkname)
        member.size = int(records.get(b"size", member.size))
        member.uid = int(records.get(b"uid", member.uid))
        member.gid = int(records.get(b"gid", member.gid))
        member.pax_headers = {key.decode("utf-8", "surrogateescape"): value for key, value in texts.items()}
        self._name = member.name

    def _check(self, member: tarfile.TarInfo) -> None:
        if member.type not in _FILE_TYPES:
            raise self._ambiguous(f"a member of the type {member.type!r}")
        expected = _FILE_TYPES[member.type]
        if expected is not None and member.mode & ~0o7777 not in (0, expected):
            raise self._ambiguous(f"a mode of another type of file, {member.mode:o}")
        link = member.type in (tarfile.LNKTYPE, tarfile.SYMTYPE)
        if not link:
            member.linkname = ""
        elif not member.linkname:
            raise self._ambiguous("a link without a target")
        if member.size and member.type != tarfile.REGTYPE:
            raise self._ambiguous("a link, folder or device with content")
        if member.type != tarfile.DIRTYPE and member.name.rpartition("/")[2] in ("", "."):
            raise self._ambiguous("the name of a folder for something else")

    def _ambiguous(self, what: str) -> UnpackError:
        return UnpackError(
            f"{self._owner}: {self._name[:200] or 'its beginning'}: {what}: programs read this differently",
            id="tar-ambiguous",
        )

    def _damaged(self, what: str) -> UnpackError:
        return UnpackError(f"{self._owner} is damaged: {what}", id="archive-damaged")


@functools.lru_cache(4096)
def _octal(field: bytes) -> int | None:
    # Cached: most members of an archive have the same mode, owner and time.
    octal = _NUMBER.fullmatch(field)
    return int(octal[1] or b"0", 8) if octal else None


def _padded(size: int) -> int:
    """The bytes that a content of this size takes: whole blocks."""
    return -(-size // _BLOCK) * _BLOCK
