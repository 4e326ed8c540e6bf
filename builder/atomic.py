"""Writes files atomically: completely or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from builder.regular import is_regular


def write_file(path: Path, data: bytes, *, follow: bool = True) -> None:
    """Write a file atomically: readers see the old or the new content. The file's mode stays.

    follow: write the file that a symbolic link leads to; otherwise the file replaces the link.
    """
    with staged({path: data}, follow=follow) as put:
        put(path)


@contextlib.contextmanager
def staged(files: Mapping[Path, bytes], *, follow: bool = True) -> Iterator[Callable[[Path], None]]:
    """Write temporary files beside their targets; the yielded function moves one of them to its target.

    A full disk is an error before any target changes.
    """
    ready: dict[Path, Path] = {}

    def place(path: Path) -> Path:
        return path.resolve() if follow else path.absolute()

    def put(path: Path) -> None:
        ready[path].replace(place(path))

    try:
        for path, data in files.items():
            target = place(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            mode = target.stat().st_mode & 0o777 if is_regular(target) else 0o644
            descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
            ready[path] = Path(name)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
            except OSError as error:
                error.filename = str(target)
                raise
            ready[path].chmod(mode)
        yield put
    finally:
        for temporary in ready.values():
            temporary.unlink(missing_ok=True)
