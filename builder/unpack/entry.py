"""Entry: one file, directory or link of a layer's tree; and UnpackError."""

from __future__ import annotations

import contextlib
import csv
import errno
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

inflater: Any = zlib
with contextlib.suppress(ImportError):
    from isal import isal_zlib

    inflater = isal_zlib
"""Inflates in half the time of zlib or less; a stage of a rendered Dockerfile has the standard library alone."""
CHUNK = 1 << 20
_SMALL = 1 << 20
"""bytes"""
_LONGEST_PATH = 4096
"""bytes; Linux has no longer paths."""

_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    inflater.error,
    lzma.LZMAError,
    csv.Error,
    EOFError,
)

Reader = Callable[[], Iterator[bytes]]


class UnpackError(Exception):
    """An input that cannot be unpacked, or a file that a layer may not hold. id: the stable name of the message."""

    def __init__(self, what: str, *, id: str) -> None:
        super().__init__(what)
        self.id = id


@dataclass(frozen=True, slots=True)
class Entry:
    """A member of a layer's tree.

    path: relative, without leading or trailing slash. kind: file, dir, symlink or hardlink. mode: permission bits.
    size: of a file, in bytes. link: target of a symlink as written, or path of the file that a hardlink is.
    read: yields a file's content in chunks, from the start on each call. owner: the input that holds it, for messages.
    """

    path: str
    kind: str
    mode: int
    size: int = 0
    link: str = ""
    read: Reader | None = None
    owner: str = ""


def from_bytes(path: str, data: bytes, mode: int = 0o644, owner: str = "") -> Entry:
    """A file with this content."""
    return Entry(path, "file", mode, len(data), read=lambda: iter((data,)), owner=owner)


def symlink(path: str, target: str, owner: str = "") -> Entry:
    """A symbolic link."""
    return Entry(path, "symlink", 0o777, link=target, owner=owner)


def directory(path: str, mode: int = 0o755, owner: str = "") -> Entry:
    """A directory."""
    return Entry(path, "dir", mode, owner=owner)


def content(entry: Entry) -> bytes:
    """The whole content of a small file. Raises UnpackError."""
    if entry.read is None:
        raise UnpackError(f"{entry.path} has no content", id="entry-no-content")
    if entry.size > _SMALL:
        raise UnpackError(f"{entry.path} has more than {_SMALL >> 20} MB", id="entry-too-large")
    return b"".join(entry.read())


def raw(path: str) -> bytes:
    """The bytes of a path: not every name is UTF-8."""
    return path.encode("utf-8", "surrogateescape")


@contextlib.contextmanager
def damaged(owner: str) -> Iterator[None]:
    """Maps the standard library's exceptions for damaged archives to UnpackError.

    An error of the machine, such as a full disk, stays an OSError.
    """
    try:
        yield
    except _DAMAGED as error:
        raise UnpackError(f"{owner} is damaged: {error}", id="archive-damaged") from error
    except (ValueError, IndexError, RuntimeError) as error:
        # Invalid numbers and text, empty names; compressions and encryptions that zipfile does not support.
        raise UnpackError(f"{owner} cannot be read: {error}", id="archive-unreadable") from error
    except OSError as error:
        # gzip and bz2 raise it, without an errno, for content of another format; a seek to a negative place is EINVAL.
        if error.errno not in (None, errno.EINVAL):
            raise
        raise UnpackError(f"{owner} is damaged: {error}", id="archive-damaged") from error


def clean_path(name: str, owner: str) -> str:
    """A member name as a relative path. Raises UnpackError for a name that leads out of the tree."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name:
        raise UnpackError(f"{owner}: unsafe path {name[:200]!r}", id="member-path-unsafe")
    check_length(name, owner)
    return "/".join(parts)


def check_length(path: str, owner: str) -> None:
    """Raises UnpackError for a path, or the target of a link, that is longer than Linux has them."""
    if len(raw(path)) > _LONGEST_PATH:
        raise UnpackError(f"{owner}: a path has more than {_LONGEST_PATH} bytes", id="member-path-too-long")
