"""The lock: every byte that a build may read, by hash. No host names: paths, versions, hashes and sizes only."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from builder.model.common import Commit, FileName, Flagged, Name, RelativePath, Sha256, Strict, Timestamp, Version

Size = Annotated[int, Field(ge=0, lt=2**53, strict=True)]
"""Bytes; what every reader of JSON can hold."""

Requirement = Annotated[str, Field(pattern=r"^[A-Za-z0-9][^\x00-\x1f\x7f]*$", max_length=4096)]
"""One line of a requirements file that cannot be an option of it."""

AptName = Annotated[str, Field(pattern=r"^[A-Za-z0-9?~(][^\x00-\x1f\x7f]*$", max_length=4096)]
"""A package or pattern for apt that cannot be an option of it."""

Architecture = Literal["amd64", "arm64"]

Seal = Sha256 | None
"""Over everything else in a section, as `builder lock` wrote it (`builder.lock.seal`)."""


class Deb(Strict):
    """One Debian binary package. `path` is relative to the archive's root, as `Filename:` in its package index."""

    package: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.+-]+$")]
    version: Version
    architecture: Literal["amd64", "arm64", "all"]
    path: RelativePath
    sha256: Sha256
    size: Size


class DebRequest(Strict):
    """What a section of Debian packages was resolved from: its freshness is decided by comparing this."""

    suite: Name
    architecture: Architecture
    packages: tuple[AptName, ...]
    """apt package names or patterns, as given to `apt-get install`."""


class DebLock(Strict):
    """A locked, dependency-complete set of Debian packages, in the order in which they are unpacked."""

    kind: Literal["debs"] = "debs"
    name: Name
    locked: Timestamp
    request: DebRequest
    packages: tuple[Deb, ...]
    seal: Seal = None

    @property
    def entries(self) -> tuple[Deb, ...]:
        """The locked files."""
        return self.packages


class Wheel(Strict):
    """One wheel: exactly this file."""

    name: Name
    version: Version
    file: FileName
    sha256: Sha256
    size: Size


class WheelRequest(Strict):
    """What a section of wheels was resolved from."""

    requirements: tuple[Requirement, ...]
    constraints: tuple[Requirement, ...] = ()
    without: tuple[Name, ...] = ()
    """Sections whose distributions the target already holds: they are constraints and are left out of the result."""
    python: Annotated[str, Field(pattern=r"^3\.\d+$")]
    platform: Name
    """As `uv pip compile --python-platform` spells it, e.g. aarch64-manylinux_2_39."""
    dependencies: Flagged = True


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


class Mirror(Strict):
    """Where a source archive can be had; every mirror of a source serves the same bytes."""

    kind: Literal["debian", "github"]
    path: RelativePath
    """debian: path in the archive. github: OWNER/REPO/archive/refs/tags/TAG.tar.gz"""


class Source(Strict):
    """A source archive and the git objects it was made from."""

    name: Name
    version: Version
    file: FileName
    sha256: Sha256
    size: Size
    commit: Commit
    tree: Commit
    mirrors: Annotated[tuple[Mirror, ...], Field(min_length=1)]


class SourceRequest(Strict):
    """Which versions of a source are locked, and where they are.

    github: OWNER/REPO. tag: what its tags are called, with {version} once. debian: for the versions that Debian has the
    same archive of, its path there.
    """

    github: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}/[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    tag: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]*\{version\}[A-Za-z0-9._-]*$")] = "v{version}"
    versions: tuple[Version, ...]
    debian: dict[Version, RelativePath] = {}

    @model_validator(mode="after")
    def _versions_fit(self) -> SourceRequest:
        if len(set(self.versions)) != len(self.versions):
            raise ValueError("a version stands twice")
        if unknown := sorted(set(self.debian) - set(self.versions)):
            raise ValueError(f"debian has {unknown[0]}, which is not among the versions")
        return self

    def tag_of(self, version: str) -> str:
        """The tag of a version."""
        return self.tag.replace("{version}", version)

    def mirrors_of(self, version: str) -> tuple[Mirror, ...]:
        """Where the archive of a version can be had, the one that is asked first first."""
        found = [Mirror(kind="debian", path=self.debian[version])] if version in self.debian else []
        path = f"{self.github}/archive/refs/tags/{self.tag_of(version)}.tar.gz"
        return (*found, Mirror(kind="github", path=path))


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
    """What everything locked is resolved from (`recipes/locks/requests.yaml`), by section name or name of a source."""

    debs: dict[Name, DebRequest] = {}
    wheels: dict[Name, WheelRequest] = {}
    sources: dict[Name, SourceRequest] = {}
