"""The lock: every byte that a build may read, by hash. No host names: paths, versions, hashes and sizes only."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from builder.model.common import (
    Boolean,
    Commit,
    FileName,
    Line,
    Name,
    RelativePath,
    Sha256,
    Strict,
    Timestamp,
    Version,
)

Size = Annotated[int, Field(ge=0, lt=2**53, strict=True)]
"""Bytes, within the integers that every JSON parser holds exactly."""

Requirement = Annotated[str, Field(pattern=r"^[A-Za-z0-9][^\x00-\x1f\x7f@/$\\]*$", max_length=4096)]
"""The name of a distribution and its versions, as in PEP 508; it cannot be an option or name a file or an address.

uv replaces ${NAME} in an address by a variable of this machine, and sends it there.
"""

AptName = Annotated[str, Field(pattern=r"^[A-Za-z0-9?~(][^\x00-\x1f\x7f\\{]*$", max_length=4096)]
"""A package or pattern for apt; it cannot be an option, nor repeat by number or refer back: 50 bytes took gigabytes."""

Architecture = Literal["amd64", "arm64"]

_COMMIT = r"[0-9a-f]{40}"

Seal = Sha256 | None
"""A hash over all other fields of a section, written by `builder lock` (`builder.lock.seal`)."""


class Deb(Strict):
    """One Debian binary package. `path` is relative to the archive's root, as `Filename:` in its package index."""

    package: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.+-]+$")]
    version: Version
    architecture: Literal["amd64", "arm64", "all"]
    path: RelativePath
    sha256: Sha256
    size: Size


class DebRequest(Strict):
    """The request that a section of Debian packages was resolved from. A section with another request is stale."""

    suite: Name
    architecture: Architecture
    packages: tuple[AptName, ...]
    """apt package names or patterns, as given to `apt-get install`; NAME>=VERSION is a name and its oldest version."""
    without: tuple[Name, ...] | None = None
    """Sections whose packages the target already holds, in these versions: they are left out of the result."""


class DebLock(Strict):
    """A locked, dependency-complete set of Debian packages, in the order in which they are unpacked."""

    kind: Literal["debs"] = "debs"
    name: Name
    locked: Timestamp
    request: DebRequest
    beside: dict[Name, Sha256] | None = None
    """For each section in the request's `without`: a digest of the packages that it held at that time."""
    packages: tuple[Deb, ...]
    seal: Seal = None

    @property
    def entries(self) -> tuple[Deb, ...]:
        """The locked files."""
        return self.packages


class Wheel(Strict):
    """One wheel file."""

    name: Name
    version: Version
    file: FileName
    sha256: Sha256
    size: Size


class Override(Strict):
    """A requirement that replaces what the distributions themselves ask of a package."""

    requirement: Requirement
    why: Annotated[Line, Field(min_length=10)]


class WheelRequest(Strict):
    """The request that a section of wheels was resolved from.

    exclude_newer: files that the index got later do not exist for this section, so that a version of vLLM is resolved
    with what was released around it. None: no limit.
    """

    requirements: tuple[Requirement, ...]
    constraints: tuple[Requirement, ...] = ()
    overrides: tuple[Override, ...] | None = None
    exclude_newer: Timestamp | None = None
    without: tuple[Name, ...] = ()
    """Sections whose distributions the target already holds: they are constraints and are left out of the result."""
    python: Annotated[str, Field(pattern=r"^3\.[0-9]{1,2}$")]
    platform: Name
    """A value of `uv pip compile --python-platform`, e.g. aarch64-manylinux_2_39."""
    dependencies: Boolean = True


class WheelLock(Strict):
    """A locked set of wheels for one interpreter and platform."""

    kind: Literal["wheels"] = "wheels"
    name: Name
    locked: Timestamp
    request: WheelRequest
    beside: dict[Name, Sha256] = {}
    """For each section in the request's `without`: a digest of the distributions that it held at that time."""
    wheels: tuple[Wheel, ...]
    seal: Seal = None

    @property
    def entries(self) -> tuple[Wheel, ...]:
        """The locked files."""
        return self.wheels


class SourceMirror(Strict):
    """A location of a source archive; every mirror of a source serves the same bytes."""

    kind: Literal["debian", "github", "index"]
    path: RelativePath
    """debian: path in the archive. github: OWNER/REPO/archive/refs/tags/TAG.tar.gz. index: a project's name"""


class Source(Strict):
    """A source archive. commit and tree: in git; a source distribution of a package index has none."""

    name: Name
    version: Version
    file: FileName
    sha256: Sha256
    size: Size
    commit: Commit | None = None
    tree: Commit | None = None
    mirrors: Annotated[tuple[SourceMirror, ...], Field(min_length=1)]


class SourceRequest(Strict):
    """The versions of a source to lock, and their locations: either a repository or a project in a package index.

    github: OWNER/REPO. tag: the pattern of its tags, with {version} once; a version that is a commit (40 digits) is
    that commit. debian: the archive's path in Debian, for the versions that Debian has. index: the project whose source
    distributions (sdists) are locked.
    """

    github: Annotated[
        str | None, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}/[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    ] = None
    index: Name | None = None
    tag: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]*\{version\}[A-Za-z0-9._-]*$")] = "v{version}"
    versions: tuple[Version, ...]
    debian: dict[Version, RelativePath] = {}

    @model_validator(mode="after")
    def _versions_fit(self) -> SourceRequest:
        if len(set(self.versions)) != len(self.versions):
            raise ValueError("a version is listed twice")
        if unknown := sorted(set(self.debian) - set(self.versions)):
            raise ValueError(f"debian lists {unknown[0]}, which is not in versions")
        if (self.github is None) == (self.index is None):
            raise ValueError("needs exactly one of github and index")
        if self.index is not None and (self.debian or self.tag != "v{version}"):
            raise ValueError("a project in a package index has neither tags nor Debian archives")
        return self

    def tag_of(self, version: str) -> str:
        """The tag of a version, or the commit that the version is."""
        return version if re.fullmatch(_COMMIT, version) else self.tag.replace("{version}", version)

    def mirrors_of(self, version: str) -> tuple[SourceMirror, ...]:
        """The mirrors of a version's archive, in the order in which they are tried."""
        if self.index is not None:
            return (SourceMirror(kind="index", path=self.index),)
        found = [SourceMirror(kind="debian", path=self.debian[version])] if version in self.debian else []
        named = version if re.fullmatch(_COMMIT, version) else f"refs/tags/{self.tag_of(version)}"
        path = f"{self.github}/archive/{named}.tar.gz"
        return (*found, SourceMirror(kind="github", path=path))


class SourceLock(Strict):
    """All source archives."""

    kind: Literal["sources"] = "sources"
    name: Name
    locked: Timestamp
    sources: tuple[Source, ...]
    seal: Seal = None

    @property
    def entries(self) -> tuple[Source, ...]:
        """The locked files."""
        return self.sources


LockSection = DebLock | WheelLock | SourceLock


class LockRequests(Strict):
    """The requests of all sections and sources (`recipes/locks/requests.yaml`), by name."""

    debs: dict[Name, DebRequest] = {}
    wheels: dict[Name, WheelRequest] = {}
    sources: dict[Name, SourceRequest] = {}
