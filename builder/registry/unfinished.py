"""Uploads that were not finished: a later process goes on with them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from builder.registry.config import state_folder
from builder.regular import open_regular
from builder.store.claims import try_lock

_LONGEST = 8192
"""Bytes of a URL."""
_DAYS = 7
"""After which registries have removed an unfinished upload; docker's registry does so by default."""


class Remembered:
    """The URL of an unfinished upload, None for none. file: locked by this process; without one nothing is kept."""

    def __init__(self, file: IO[str] | None = None) -> None:
        self._file = file
        text = ""
        if file is not None:
            file.seek(0)
            text = file.read(_LONGEST)
        self.url = text if text.startswith(("https://", "http://")) and text.isprintable() else None

    def keep(self, url: str) -> None:
        """Write the URL down, if it can be."""
        if self._file is not None and len(url) <= _LONGEST:
            with contextlib.suppress(OSError):
                self._file.truncate(0)
                self._file.write(url)
                self._file.flush()

    def forget(self) -> None:
        """The upload has ended."""
        self.keep("")


@contextlib.contextmanager
def remembered(name: str) -> Iterator[Remembered]:
    """The unfinished upload of this name, for this process alone: another one that uploads it meanwhile starts anew."""
    folder = state_folder("uploads")
    path = folder / hashlib.sha256(name.encode()).hexdigest()
    with contextlib.ExitStack() as stack:
        file = None
        with contextlib.suppress(OSError, ValueError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _remove_old(folder)
            opened = stack.enter_context(open_regular(path, "a+"))
            # The URL may hold a token of the registry.
            os.fchmod(opened.fileno(), 0o600)
            file = opened if try_lock(opened) else None
        try:
            yield Remembered(file)
        finally:
            with contextlib.suppress(OSError):
                if file is not None and not os.fstat(file.fileno()).st_size:
                    path.unlink()


def _remove_old(folder: Path) -> None:
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if path.lstat().st_mtime < time.time() - _DAYS * 86400:
                path.unlink()
