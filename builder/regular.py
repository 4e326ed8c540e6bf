"""Opens regular files of folders that other programs write to: never waits for a pipe, never truncates a file."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, overload

_NO_FILE = (errno.ELOOP, errno.ENXIO, errno.EISDIR)
"""What open(2) reports for a link with O_NOFOLLOW, for a pipe or socket, and for a folder."""

_Mode = Literal["r+", "a+"]
_FLAGS = {"rb": os.O_RDONLY, "r+": os.O_RDWR, "a+": os.O_RDWR | os.O_CREAT | os.O_APPEND}


class NotRegularError(OSError):
    """A path names a link, a pipe, a folder or a device where a regular file is expected."""


@overload
def open_regular(path: Path, mode: Literal["rb"] = "rb", *, follow: bool = False) -> BinaryIO: ...
@overload
def open_regular(path: Path, mode: _Mode, *, follow: bool = False) -> IO[str]: ...
def open_regular(path: Path, mode: Literal["rb"] | _Mode = "rb", *, follow: bool = False) -> IO[Any]:
    """Open a regular file: "rb" to read bytes without a buffer, "r+" and "a+" for text. Only "a+" creates the file.

    follow: also open the file that a symbolic link leads to. Raises NotRegularError, and OSError as `open` does.
    """
    flags = _FLAGS[mode] | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise _not_regular(path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_regular(path)
    return os.fdopen(descriptor, mode, buffering=0) if mode == "rb" else os.fdopen(descriptor, mode, encoding="utf-8")


def read_regular(path: Path, limit: int, *, follow: bool = False) -> bytes:
    """The content of a regular file of at most `limit` bytes. Raises as `open_regular`, and OSError (EFBIG)."""
    with open_regular(path, follow=follow) as file:
        parts, size = [], 0
        while size <= limit and (chunk := file.read(min(limit + 1 - size, 1 << 20))):
            parts.append(chunk)
            size += len(chunk)
    if size > limit:
        raise OSError(errno.EFBIG, f"larger than {limit} bytes", str(path))
    return b"".join(parts)


def is_regular(path: Path) -> bool:
    """Whether a path names a regular file and not a link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _not_regular(path: Path) -> NotRegularError:
    return NotRegularError(errno.EINVAL, "not a regular file", str(path))
