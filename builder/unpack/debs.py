"""Unpacks Debian packages into entries, without running maintainer scripts."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .bounds import Budget, Unpacked
from .control import Control, conffiles_of, parse
from .entry import Entry, UnpackError, clean_path, damaged
from .spool import Spool
from .tar import Archive

MERGED = ("bin", "sbin", "lib", "lib64")
"""Top-level folders that are links into /usr; packages of bookworm still put files through them."""
_LONGEST_TEXT = 1 << 20
"""bytes of a control file."""
_MOST_CONTROL = 1000
"""Members of a control archive: a package of 39 kB had half a million."""


@dataclass(frozen=True)
class Package:
    """An unpacked package: its control file, its conffiles, its paths."""

    control: Control
    conffiles: tuple[str, ...]
    paths: tuple[str, ...]


def unpack(files: Iterable[tuple[Path, str]], spool: Spool, budget: Budget) -> tuple[list[Entry], list[Package]]:
    """Members of all packages, in the order of `files`, with paths below bin, sbin, lib and lib64 moved below usr.

    files: the path of each package, under any name, and the package's own file name. Raises UnpackError.
    """
    entries: list[Entry] = []
    packages: list[Package] = []
    for path, label in files:
        with damaged(label):
            members, package = _unpack_package(path, label, spool, budget)
        entries += members
        packages.append(package)
    return entries, packages


def read_control(path: Path, label: str, budget: Budget) -> Control:
    """The control file of a package. label: the package's own file name. Raises UnpackError."""
    with damaged(label), path.open("rb") as file:
        for name, size in _ar_members(file, label):
            start = file.tell()
            if name.startswith("control.tar"):
                return _control(Unpacked(_Window(file, size), name.rpartition(".")[2], label, budget), label)[0]
            file.seek(start + size + size % 2)
    raise UnpackError(f"{label}: not a Debian package", id="deb-invalid")


def _unpack_package(path: Path, label: str, spool: Spool, budget: Budget) -> tuple[list[Entry], Package]:
    control: Control | None = None
    conffiles: tuple[str, ...] = ()
    entries: list[Entry] | None = None
    with path.open("rb") as file:
        for name, size in _ar_members(file, label):
            start, compression = file.tell(), name.rpartition(".")[2]
            if start + size > path.stat().st_size:
                raise UnpackError(f"{label} ends within its member {name}", id="deb-truncated")
            if (name.startswith("control.tar") and control) or (name.startswith("data.tar") and entries is not None):
                raise UnpackError(f"{label}: it has two members {name}", id="deb-invalid")
            if name.startswith("control.tar"):
                control, conffiles = _control(Unpacked(_Window(file, size), compression, label, budget), label)
            elif name.startswith("data.tar"):
                stream = Unpacked(_Window(file, size), compression, label, budget)
                entries = [_merged(entry) for entry in spool.take(stream, label, budget)]
            file.seek(start + size + size % 2)
    if control is None or entries is None:
        raise UnpackError(f"{label}: not a Debian package", id="deb-invalid")
    if odd := next((entry.path for entry in entries if "\n" in entry.path), None):
        raise UnpackError(f"{label}: a path holds a line break, which dpkg refuses: {odd!r}", id="deb-path-invalid")
    return entries, Package(control, conffiles, tuple(entry.path for entry in entries))


def _ar_members(file: IO[bytes], owner: str) -> Iterable[tuple[str, int]]:
    if file.read(8) != b"!<arch>\n":
        raise UnpackError(f"{owner}: not a Debian package", id="deb-invalid")
    while len(header := file.read(60)) == 60:
        size = header[48:58].strip()
        if header[58:] != b"`\n" or not size.isdigit():
            raise UnpackError(f"{owner}: damaged ar header", id="deb-invalid")
        yield header[:16].decode("ascii", "replace").strip().rstrip("/"), int(size)


class _Window(io.RawIOBase):
    """The next `size` bytes of a file as a file of its own."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._start = file.tell()
        self._size = size
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = base + offset
        return self._place

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        self._file.seek(self._start + self._place)
        data = self._file.read(max(0, min(len(buffer), self._size - self._place)))
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)


def _control(stream: Unpacked, owner: str) -> tuple[Control, tuple[str, ...]]:
    texts: dict[str, str] = {}
    for number, member in enumerate(Archive(stream, owner)):
        if number >= _MOST_CONTROL:
            raise UnpackError(f"{owner}: more than {_MOST_CONTROL} control files", id="deb-control-invalid")
        name = clean_path(member.name, owner)
        if name not in ("control", "conffiles"):
            continue
        if name in texts or not member.isreg() or member.size > _LONGEST_TEXT:
            raise UnpackError(f"{owner}: {name} is there twice, is no file or is too long", id="deb-control-invalid")
        texts[name] = stream.read(member.size).decode("utf-8")
    if not texts.get("control"):
        raise UnpackError(f"{owner}: no control file", id="deb-control-missing")
    return parse(texts["control"], owner), conffiles_of(texts.get("conffiles", ""), owner)


def _merged(entry: Entry) -> Entry:
    path, link = _usr(entry.path), entry.link
    if entry.kind == "dir" and path in MERGED:
        path = f"usr/{path}"
    if entry.kind == "hardlink":
        link = _usr(link)
    if path == entry.path and link == entry.link:
        return entry
    return Entry(path, entry.kind, entry.mode, entry.size, link, entry.read, entry.owner)


def _usr(path: str) -> str:
    first, slash, _ = path.partition("/")
    return f"usr/{path}" if slash and first in MERGED else path
