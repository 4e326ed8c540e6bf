"""Writes files atomically: completely or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from builder.regular import is_regular


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically: readers see the old or the new content. The file's mode stays.

    A symbolic link is replaced: the file that it leads to may be anywhere.
    """
    with staged({path: data}) as put:
        put(path)


def check_writable(folder: Path) -> None:
    """Raises OSError when no file can be written to a folder. As root, permissions do not tell: /proc refuses."""
    with tempfile.TemporaryFile(dir=folder):
        pass


@contextlib.contextmanager
def staged(files: Mapping[Path, bytes]) -> Iterator[Callable[[Path], None]]:
    """Write temporary files beside their targets; the yielded function moves one of them to its target.

    A full disk is an error before any target changes.
    """
    ready: dict[Path, Path] = {}

    def put(path: Path) -> None:
        ready[path].replace(path)

    try:
        for path, data in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            mode = path.stat().st_mode & 0o777 if is_regular(path) else 0o644
            descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            ready[path] = Path(name)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
            except OSError as error:
                error.filename = str(path)
                raise
            ready[path].chmod(mode)
        yield put
    finally:
        for temporary in ready.values():
            temporary.unlink(missing_ok=True)
