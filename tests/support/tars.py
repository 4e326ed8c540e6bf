"""Tar archives from a mapping of names to contents."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class File:
    """A file with a mode."""

    data: bytes = b""
    mode: int = 0o644


@dataclass(frozen=True)
class Folder:
    """A directory with a mode."""

    mode: int = 0o755


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(frozen=True)
class Hard:
    """A hard link to another member."""

    target: str


@dataclass(frozen=True)
class Node:
    """A device, pipe or another member of this tar type."""

    kind: bytes


Content = bytes | str | File | Folder | Link | Hard | Node
Members = Mapping[str, Content] | Iterable[tuple[str, Content]]


def tar(members: Members, prefix: str = "", format: int = tarfile.PAX_FORMAT) -> bytes:
    """An uncompressed archive with these members, in this order, owned by somebody at some time."""
    out = io.BytesIO()
    pairs = members.items() if isinstance(members, Mapping) else members
    with tarfile.open(fileobj=out, mode="w", format=format, encoding="utf-8", errors="surrogateescape") as archive:
        for name, content in pairs:
            info, data = member(prefix + name, content, prefix)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def member(name: str, content: Content, prefix: str = "") -> tuple[tarfile.TarInfo, bytes]:
    """One member and its data."""
    info = tarfile.TarInfo(name)
    info.uid = info.gid = 1000
    info.uname = info.gname = "somebody"
    info.mtime = 1700000000
    if isinstance(content, str):
        content = content.encode()
    if isinstance(content, bytes):
        content = File(content)
    data = b""
    match content:
        case File():
            info.mode, data = content.mode, content.data
            info.size = len(data)
        case Folder():
            info.type, info.mode = tarfile.DIRTYPE, content.mode
        case Link():
            info.type, info.mode, info.linkname = tarfile.SYMTYPE, 0o777, content.target
        case Hard():
            info.type, info.linkname = tarfile.LNKTYPE, prefix + content.target
        case Node():
            info.type = content.kind
    return info, data


def listing(data: bytes) -> dict[str, tarfile.TarInfo]:
    """The members of an uncompressed archive by name, directories without their slash."""
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8", errors="surrogateescape") as archive:
        return {info.name: info for info in archive.getmembers()}


def contents(data: bytes) -> dict[str, bytes]:
    """The regular files of an uncompressed archive."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {info.name: archive.extractfile(info).read() for info in archive if info.isreg()}  # type: ignore[union-attr]


def sdist(path: Path, members: dict[str, bytes | None]) -> Path:
    """A source distribution with these files; None is a link to /etc/passwd."""
    with tarfile.open(path / "x.tar.gz", "w:gz", compresslevel=1) as made:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            if data is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            else:
                info.size = len(data)
            made.addfile(info, io.BytesIO(data) if data is not None else None)
    return path / "x.tar.gz"
