"""Claims: the blobs and records that a running process uses and `builder gc` keeps. Cleans up after dead processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import IO

from builder.errors import EngineError
from builder.regular import NotRegularError, is_regular, open_regular
from builder.store.blobs import disk_error
from builder.store.removal import remove

_OWNER = re.compile(r"[0-9]+\.[0-9a-f]{8}")
_HEADER = "claims"
"""The first line of a process's lock file."""


class Claims:
    """The claims of this process, in its lock file. owner: the name of that file. Thread-safe.

    A claim is the digest of a blob or a path below the root. A process locks its file for as long as it lives.
    Process ids are not enough: another container that uses the same store has process ids of its own.
    """

    def __init__(self, root: Path, tmp: Path, owner: str) -> None:
        self._root = root
        self._tmp = tmp
        self._owner = owner
        self._file: IO[str] | None = None
        self._names: set[str] = set()
        self._lock = Lock()
        self._exclusive = False

    def start(self) -> None:
        """Create the lock file and remove the files of processes that ended. Raises OSError."""
        self._file = _hold(self._root / "locks" / self._owner)
        self._remove_leftovers()

    def add(self, *names: str) -> None:
        """Claim names. Without a lock file (a read-only store) nothing is claimed, and nothing can be removed."""
        with self._lock:
            new = [name for name in names if name not in self._names]
            if not new or self._file is None or self._exclusive:
                return
            with contextlib.suppress(OSError), open_regular(self._root / "locks" / "gc", "a+") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                self._file.writelines(f"{name}\n" for name in new)
                self._file.flush()
                self._names.update(new)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[set[str] | None]:
        """Block new claims. Yields the claims of other living processes, None when there is no other process.

        Raises EngineError when the store is read-only or a process's claims cannot be read.
        """
        try:
            file = open_regular(self._root / "locks" / "gc", "a+")
        except OSError as error:
            raise disk_error(error, self._root) from error
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._exclusive = True
            try:
                yield self._claims_of_others()
            finally:
                self._exclusive = False

    def _claims_of_others(self) -> set[str] | None:
        found: set[str] = set()
        for path in (self._root / "locks").iterdir():
            if path.name == self._owner or not _OWNER.fullmatch(path.name):
                continue
            if (lines := _read(path)) is None:
                continue
            if _HEADER not in lines[:1]:
                raise EngineError(
                    "another process uses this store and its claims cannot be read",
                    id="store-claims-unreadable",
                    where=str(path),
                    next="builder gc, when that process has ended",
                )
            found.update(lines)
        return found or None

    def _remove_leftovers(self) -> None:
        """Remove the files below tmp/ and the lock files of ended processes."""
        left: dict[str, list[Path]] = {}
        for path in (*self._tmp.iterdir(), *(self._root / "locks").iterdir()):
            owner = path.name.partition("-")[0]
            if owner != self._owner and _OWNER.fullmatch(owner):
                left.setdefault(owner, []).append(path)
        for owner, paths in left.items():
            lock = self._root / "locks" / owner
            if os.path.lexists(lock) and not is_regular(lock):
                remove(lock)  # No process locks a link, a pipe or a folder.
            # Locked during the removal, because a new process could have the same name. A file that another process
            # has removed meanwhile locks nothing: its name may be that of a living process.
            with open_regular(lock, "a+") as file:
                if try_lock(file) and os.fstat(file.fileno()).st_nlink:
                    for path in (*paths, lock):
                        remove(path)


def try_lock(file: IO[str] | int) -> bool:
    """Lock an open file or descriptor without waiting; False when another process holds the lock. Raises OSError."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _hold(path: Path) -> IO[str]:
    """A lock file that stays locked until this process ends."""
    while True:
        file = open_regular(path, "a+")
        # Before the lock, another process may treat the file as that of an ended process and remove it.
        if try_lock(file) and os.fstat(file.fileno()).st_nlink:
            file.write(f"{_HEADER}\n")
            file.flush()
            return file
        file.close()


def _read(path: Path) -> list[str] | None:
    """The lines of a process's lock file; None when the process has ended."""
    for _ in range(20):
        try:
            with open_regular(path, "r+") as file:
                if try_lock(file):
                    return None
                if lines := file.read().splitlines():
                    return lines
        except (FileNotFoundError, NotRegularError):
            return None
        time.sleep(0.05)  # The process has just started.
    return []
