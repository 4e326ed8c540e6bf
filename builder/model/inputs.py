"""Inputs of a build: one locked file by its hash, and the locations to fetch it from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import ConfigDict

from builder.digest import Digest
from builder.model.common import Commit, FileName, Line, RelativePath, Sha256
from builder.model.lock import Deb, Size, Source, Wheel

_EXACT = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True)
class Location:
    """One location of a file, without the host, which comes from the machine's configuration.

    debian: `path` below an archive's root. snapshot: `path` below a snapshot archive. github: `path` on GitHub.
    index: `path` is the project's name in a package index.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _EXACT

    kind: Literal["debian", "snapshot", "github", "index"]
    path: RelativePath


@dataclass(frozen=True)
class Input:
    """One locked file; size in bytes, sha256 as hex. commit: of a source in git."""

    __pydantic_config__: ClassVar[ConfigDict] = _EXACT

    kind: Literal["deb", "wheel", "source"]
    name: Line
    file: FileName
    sha256: Sha256
    size: Size
    locations: tuple[Location, ...]
    commit: Commit | None = None

    @property
    def package(self) -> str:
        """The name without the version."""
        return self.name.partition(" ")[0]

    @property
    def version(self) -> str:
        """The version in the name."""
        return self.name.partition(" ")[2]

    @property
    def digest(self) -> Digest:
        """The digest, which is the name in the store."""
        return Digest.from_hex(self.sha256)


@dataclass(frozen=True)
class FetchEvent:
    """Progress of one file; received, total: bytes. state `cached`: the store already had the file."""

    name: str
    received: int
    total: int
    state: Literal["start", "progress", "done", "cached"]
    digest: Digest


def from_deb(deb: Deb, locked: str) -> Input:
    """A Debian package of a section locked at `locked` (RFC 3339). A snapshot archive keeps old versions."""
    locations = (Location("debian", deb.path), Location("snapshot", f"{_stamp(locked)}/{deb.path}"))
    file = deb.path.rpartition("/")[2]
    return Input("deb", f"{deb.package} {deb.version}", file, deb.sha256, deb.size, locations)


def from_wheel(wheel: Wheel) -> Input:
    """A wheel."""
    location = Location("index", wheel.name)
    return Input("wheel", f"{wheel.name} {wheel.version}", wheel.file, wheel.sha256, wheel.size, (location,))


def from_source(source: Source, locked: str) -> Input:
    """A source archive of a section locked at `locked` (RFC 3339)."""
    locations: list[Location] = []
    for mirror in source.mirrors:
        locations.append(Location(mirror.kind, mirror.path))
    locations += [Location("snapshot", f"{_stamp(locked)}/{m.path}") for m in source.mirrors if m.kind == "debian"]
    name = f"{source.name} {source.version}"
    return Input("source", name, source.file, source.sha256, source.size, tuple(locations), source.commit)


def _stamp(locked: str) -> str:
    """The form of a time in snapshot archives: 20261121T000000Z for 2026-11-21T00:00:00Z."""
    return locked.replace("-", "").replace(":", "")
