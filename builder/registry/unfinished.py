"""Uploads that were not finished: a later process goes on with them."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

_LONGEST = 8192
"""Bytes of a URL."""
_DAYS = 7
"""After which registries have removed an unfinished upload; docker's registry does so by default."""


class Remembered:
    """The URL of an unfinished upload, None for none. Without a file nothing is kept.

    file: an open file that this process has locked.
    """

    def __init__(self, path: Path | None = None, file: int = -1) -> None:
        self._path, self._file = path, file
        text = os.pread(file, _LONGEST, 0).decode("utf-8", "replace") if path is not None else ""
        self.url = text if text.startswith(("https://", "http://")) and text.isprintable() else None

    def keep(self, url: str) -> None:
        """Write the URL down, if it can be."""
        data = url.encode()
        if self._path is not None and len(data) <= _LONGEST:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, data, 0)

    def forget(self) -> None:
        """The upload has ended."""
        self.keep("")


@contextlib.contextmanager
def remembered(name: str) -> Iterator[Remembered]:
    """The unfinished upload of this name, for this process alone: another one that uploads it meanwhile starts anew."""
    folder = _folder()
    path = folder / hashlib.sha256(name.encode()).hexdigest()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_old(folder)
        # The URL may hold a token of the registry.
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError:
        yield Remembered()
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        yield Remembered()
        return
    try:
        yield Remembered(path, file)
    finally:
        if not os.fstat(file).st_size:
            path.unlink(missing_ok=True)
        os.close(file)


def _remove_old(folder: Path) -> None:
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if path.lstat().st_mtime < time.time() - _DAYS * 86400:
                path.unlink()


def _folder() -> Path:
    """`builder/uploads` below XDG_STATE_HOME or ~/.local/state."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "builder" / "uploads"
