"""Spool: reads tar streams and keeps file contents in a temporary file, so that entries can be read in any order."""

from __future__ import annotations

import errno
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from functools import partial

from .bounds import Budget, Unpacked
from .entry import CHUNK, Entry, Reader, UnpackError, check_length, clean_path, damaged
from .tar import Archive

_MOST = 16 << 30
"""bytes of all contents of one spool"""


class Spool:
    """Keeps file contents of tar streams in one unnamed temporary file, from where entries read them.

    folder: where the temporary file lies; it needs as many bytes as the contents have together. Members keep their
    mode; owners, times and extended attributes are dropped.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._end = 0

    @property
    def size(self) -> int:
        """The bytes of the contents so far."""
        return self._end

    def close(self) -> None:
        """Release the disk space; entries can no longer be read."""
        self._file.close()

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self, stream: Unpacked, owner: str, budget: Budget) -> list[Entry]:
        """All members of an uncompressed tar stream, in its order. Raises UnpackError for what a layer cannot hold."""
        entries = []
        with damaged(owner):
            for member in Archive(stream, owner):
                budget.take(owner, "files", 1)
                entry = entry_of(member, owner, partial(self._read, self._end, member.size))
                if entry is not None:
                    budget.take(owner, "characters of names", len(entry.path) + len(entry.link))
                    entries.append(entry)
                    self._keep(stream, member.size, owner)
        return entries

    def _keep(self, stream: Unpacked, size: int, owner: str) -> None:
        end = self._end + size
        if end > _MOST:
            raise UnpackError(f"{owner}: unpacked files take more than {_MOST >> 30} GB", id="spool-too-large")
        while self._end < end:
            chunk = stream.read(min(CHUNK, end - self._end))
            if not chunk:
                raise UnpackError(f"{owner} is truncated", id="archive-truncated")
            self._file.write(chunk)
            self._end += len(chunk)

    def _read(self, start: int, size: int) -> Iterator[bytes]:
        self._file.flush()
        descriptor = self._file.fileno()
        while size > 0:
            chunk = os.pread(descriptor, min(CHUNK, size), start)
            if not chunk:
                raise UnpackError("the temporary file is shorter than the data written to it", id="spool-truncated")
            yield chunk
            start += len(chunk)
            size -= len(chunk)


def index(path: str, owner: str) -> list[Entry]:
    """All members of an uncompressed tar file, whose contents are read from that file. Raises UnpackError.

    A step of the build may have put something else there: a link would lead to a file of this machine.
    """
    budget = Budget(0)
    found = []
    with damaged(owner), open(path, "rb", opener=_regular) as file:
        for member in Archive(file, owner):
            budget.take(owner, "files", 1)
            entry = entry_of(member, owner, partial(_section, path, member.offset_data, member.size))
            if entry is not None:
                budget.take(owner, "characters of names", len(entry.path) + len(entry.link))
                found.append(entry)
    return found


def entry_of(member: tarfile.TarInfo, owner: str, read: Reader) -> Entry | None:
    """A tar member as an entry; None for the root folder itself. Raises UnpackError for what a layer cannot hold."""
    path = clean_path(member.name, owner)
    mode = member.mode & 0o7777
    if not path:
        return None
    if member.isdir():
        return Entry(path, "dir", mode, owner=owner)
    if member.issym():
        check_length(member.linkname, owner)
        return Entry(path, "symlink", 0o777, link=member.linkname, owner=owner)
    if member.islnk():
        return Entry(path, "hardlink", mode, link=clean_path(member.linkname, owner), owner=owner)
    if member.isreg():
        return Entry(path, "file", mode, member.size, read=read, owner=owner)
    raise UnpackError(
        f"{owner}: {path} is a device, socket or pipe: a layer holds files, directories and links",
        id="layer-member-special",
    )


def _section(path: str, start: int, size: int) -> Iterator[bytes]:
    with open(path, "rb", buffering=0, opener=_regular) as file:
        file.seek(start)
        while size > 0:
            chunk = file.read(min(CHUNK, size))
            if not chunk:
                raise UnpackError(f"{path} is truncated", id="archive-truncated")
            yield chunk
            size -= len(chunk)


def _regular(path: str, flags: int) -> int:
    """As `builder.regular`, which a stage of a rendered Dockerfile does not have."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
    raise UnpackError("the build left a link, a pipe or a folder where its files belong", id="archive-not-regular")
