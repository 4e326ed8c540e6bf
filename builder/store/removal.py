"""Removes and counts trees that are not ours: unreadable folders, any depth, links and mounts that lead elsewhere."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(path: Path) -> None:
    """Remove a file, or a tree of folders whatever their permissions. Links and mounts are not followed.

    What cannot be removed of a tree stays. Raises OSError when a file cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except IsADirectoryError:
        with contextlib.suppress(OSError):
            top = _open(path)
            try:
                _empty(top)
            finally:
                os.close(top)
            path.rmdir()


def files_below(folder: Path) -> Iterator[os.stat_result]:
    """What lstat(2) says of everything below a folder but folders, at any depth. What cannot be read is left out."""
    left = [str(folder)]
    while left:
        with contextlib.suppress(OSError), os.scandir(left.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    else:
                        yield entry.stat(follow_symlinks=False)


def _empty(top: int) -> None:
    """Remove everything in a folder. Each folder below is moved into it first: so no depth needs a recursion."""
    prefix = os.urandom(8).hex()
    left: list[str] = []
    count = _move_and_unlink(top, top, prefix, 0, left)
    while left:
        name = left.pop()
        with contextlib.suppress(OSError):
            folder = _open(name, top)
            try:
                count = _move_and_unlink(folder, top, prefix, count, left)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)


def _move_and_unlink(folder: int, top: int, prefix: str, count: int, left: list[str]) -> int:
    """Unlink the files of a folder and move its folders to `top`, under new names that are added to `left`."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        with contextlib.suppress(OSError):
            if not is_folder:
                os.unlink(name, dir_fd=folder)
                continue
            count += 1
            # A folder can be moved only by who may write to it; a mount cannot be moved, so it stays.
            os.close(_open(name, folder))
            os.rename(name, f"{prefix}-{count}", src_dir_fd=folder, dst_dir_fd=top)
            left.append(f"{prefix}-{count}")
    return count


def _open(name: str | Path, parent: int | None = None) -> int:
    """Open a folder after making it readable and writable for its owner."""
    handle = os.open(name, os.O_PATH | _FOLDER, dir_fd=parent)
    try:
        with contextlib.suppress(OSError):
            # chmod(2) on a name would follow a link that replaces the folder meanwhile.
            os.chmod(f"/proc/self/fd/{handle}", 0o700)  # noqa: PTH101
        return os.open(".", os.O_RDONLY | _FOLDER, dir_fd=handle)
    finally:
        os.close(handle)
