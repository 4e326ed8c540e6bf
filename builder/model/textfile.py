"""Reads files of a project with limits: texts in UTF-8, and the folder of a layer; the errors that they share."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path

from builder.errors import InvalidError
from builder.regular import NotRegularError, is_regular, read_regular
from builder.text import is_plain_line

_MAX_BYTES = 32 << 20
_MOST_FILES = 1000
_MOST_BYTES = 64 << 20
"""Limits of a layer's folder, whose files are in memory."""


def read_text(path: Path) -> str:
    """The text of a file. Raises InvalidError."""
    try:
        data = read_regular(path, _MAX_BYTES, follow=True)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise InvalidError(f"larger than {_MAX_BYTES >> 20} MB", id="file-too-large", where=str(path)) from None
        raise unreadable(path, error) from error
    return decode(data, str(path)).replace("\r\n", "\n").replace("\r", "\n")


def read_own(path: Path) -> str | None:
    """The text of a file that is about to be written again; None when there is none. Raises InvalidError.

    A link is refused: the file would get what the link leads to, which may be anywhere.
    """
    if not os.path.lexists(path):
        return None
    if not is_regular(path):
        raise not_regular(path, "a file that is written is no link, folder or pipe")
    return read_text(path)


def place_of(paths: Sequence[Path], word: str) -> str:
    """FILE:LINE of the first line that has the word, outside of comments; else the first file. Raises InvalidError."""
    for path in paths:
        for number, line in enumerate(read_text(path).splitlines(), 1):
            if re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w.-])", line.partition("#")[0]):
                return f"{path}:{number}"
    return str(paths[0]) if paths else ""


def read_folder(folder: Path, most: int = _MOST_BYTES) -> dict[str, bytes]:
    """The files of a layer's folder except layer.yaml, by relative path. Raises InvalidError.

    most: bytes that all of them may have, below the limit of every folder.

    Links are refused: the files go into build contexts, and a link could put any file of this machine there.
    """
    files: dict[str, bytes] = {}
    left = min(most, _MOST_BYTES)
    for path in _paths(folder):
        name = path.relative_to(folder).as_posix()
        if name == "layer.yaml" or path.name.startswith(".#"):
            continue
        if not is_plain_line(name):
            raise InvalidError(f"{name!a} is not a valid file name", id="layer-file-name-invalid", where=str(folder))
        try:
            files[name] = read_regular(path, left)
        except NotRegularError:
            raise not_regular(path, "a layer's folder holds regular files and folders only") from None
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise _too_large(folder) from None
            raise unreadable(path, error) from error
        left -= len(files[name])
    return files


def _paths(folder: Path) -> list[Path]:
    """What is in a folder and the folders below it, except these folders, sorted. Raises InvalidError."""
    found: list[Path] = []
    pending = [folder]
    while pending:
        here = pending.pop()
        try:
            for path in here.iterdir():
                # pip compiles the Python files of an installed layer, with their dates: they are no part of the layer.
                if path.name == "__pycache__":
                    continue
                (pending if path.is_dir() and not path.is_symlink() else found).append(path)
                if len(found) + len(pending) > _MOST_FILES:
                    raise _too_large(folder)
        except OSError as error:
            raise unreadable(here, error) from error
    return sorted(found)


def _too_large(folder: Path) -> InvalidError:
    return InvalidError(
        f"holds more than {_MOST_FILES} files or {_MOST_BYTES >> 20} MB",
        id="layer-folder-too-large",
        where=str(folder),
        cause="large files are inputs, which the lock holds by their hash",
    )


def not_regular(path: Path, cause: str) -> InvalidError:
    """The error for a link, a folder, a pipe or a device where a file is expected."""
    return InvalidError("is not a regular file", id="file-not-regular", where=str(path), cause=cause)


def decode(data: bytes, where: str) -> str:
    """UTF-8 bytes as text, line breaks unchanged. Raises InvalidError."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidError("not UTF-8 text", id="file-not-text", where=where) from error


def unreadable(path: Path, error: OSError) -> InvalidError:
    """The error for a file that the operating system cannot read."""
    return InvalidError(
        f"cannot read: {error.strerror}",
        id="file-unreadable",
        where=str(path),
        next="name a regular file that you may read",
    )


def check_name(name: str, expected: str, where: str) -> None:
    """Raises InvalidError when the `name` in a file is not the name of the file."""
    if name != expected:
        raise InvalidError(
            f"name is {name!r}, but the file's name is {expected!r}", id="file-name-mismatch", where=where
        )
