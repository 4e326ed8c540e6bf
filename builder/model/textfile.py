"""Reads text files of a project as UTF-8 with a size limit; the errors that these files share."""

from __future__ import annotations

import errno
from pathlib import Path

from builder.errors import InvalidError
from builder.regular import read_regular

_MAX_BYTES = 32 << 20


def read_text(path: Path) -> str:
    """The text of a file. Raises InvalidError."""
    try:
        data = read_regular(path, _MAX_BYTES, follow=True)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise InvalidError(f"larger than {_MAX_BYTES >> 20} MB", id="file-too-large", where=str(path)) from None
        raise unreadable(path, error) from error
    return decode(data, str(path)).replace("\r\n", "\n").replace("\r", "\n")


def decode(data: bytes, where: str) -> str:
    """UTF-8 bytes as text, line breaks unchanged. Raises InvalidError."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidError("not UTF-8 text", id="file-not-text", where=where) from error


def unreadable(path: Path, error: OSError) -> InvalidError:
    """The error for a file that the operating system cannot read."""
    return InvalidError(f"cannot read: {error.strerror}", id="file-unreadable", where=str(path))


def check_name(name: str, expected: str, where: str) -> None:
    """Raises InvalidError when the `name` in a file is not the name of the file."""
    if name != expected:
        raise InvalidError(
            f"name is {name!r}, but the file's name is {expected!r}", id="file-name-mismatch", where=where
        )
