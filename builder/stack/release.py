"""A release of vLLM in the package index: its wheel for arm64, its date, and what it asks for in vain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.errors import NetworkError, PinError
from builder.inputs.fetch import new_session
from builder.inputs.index import project_files
from builder.inputs.mirrors import redact
from builder.inputs.transfer import TransferError
from builder.lock.wheels import best_wheel
from builder.model.lock import Override
from builder.parallel import every
from builder.versions import python_version, wheel_name

if TYPE_CHECKING:
    from pypi_simple import DistributionPackage

WINDOW = timedelta(days=14)
"""How long after a release its dependencies are taken: vLLM releases every two weeks, repairs follow within days."""

WIDER = (timedelta(days=60), timedelta(days=180))
"""When nothing fits together: some packages got their wheels for arm64 months after the release that needs them."""


@dataclass(frozen=True)
class Release:
    """A version of vLLM. released: when the index got its first file; None for an index that does not say it."""

    version: str
    released: datetime | None

    def until(self, window: timedelta = WINDOW) -> str | None:
        """The newest time of files to resolve with, RFC 3339; None when the time of the release is not known."""
        return (self.released + window).strftime("%Y-%m-%dT%H:%M:%SZ") if self.released else None


def find_release(version: str, tags: Sequence[Tag], index: str) -> Release:
    """A version of vLLM in a package index. tags: of the wheels that fit. Raises PinError, NetworkError."""
    files = [package for package in listed("vllm", index) if not package.is_yanked]
    fitting = [package for package in files if _is_version(package, version)]
    if best_wheel((package.filename for package in fitting), Version(version), tags) is None:
        known = {package.version for package in files if package.version and _fits(package, tags)}
        names = sorted((name for name in known if re.fullmatch(r"[0-9.]+", name)), key=python_version)
        raise PinError(
            f"the package index has no vllm {version} for arm64",
            id="vllm-wheel-missing",
            where=redact(index),
            cause=f"the newest that it has: {', '.join(names[-5:])}" if names else "it has no version for arm64",
        )
    return Release(version, min((package.upload_time for package in fitting if package.upload_time), default=None))


def overrides_for(release: Release, requires: Sequence[str], index: str) -> tuple[Override, ...]:
    """Overrides for what a release asks for and the index does not have in any version.

    Only for a lower bound on a package of pure Python, such as certifi: an older one of those works or fails loudly. A
    compiled package in another version than it was built against may crash instead. requires: Requires-Dist of the
    wheel. Raises NetworkError.
    """
    wanted = []
    for text in requires:
        try:
            requirement = Requirement(text)
            bounds = list(requirement.specifier)
            if requirement.marker is None and [bound.operator for bound in bounds] == [">="]:
                wanted.append((requirement.name, Version(bounds[0].version)))
        except (ValueError, RecursionError):  # InvalidRequirement, a number that is too long, too many brackets
            continue
    found = every(lambda pair: _override(release, pair[0], pair[1], index), wanted, 8)
    return tuple(override for override in found if override is not None)


def _override(release: Release, name: str, bound: Version, index: str) -> Override | None:
    until = release.until()
    limit = datetime.fromisoformat(until) if until else None
    files = [
        package
        for package in listed(canonicalize_name(name), index)
        if not package.is_yanked and (limit is None or (package.upload_time and package.upload_time <= limit))
    ]
    versions = sorted({version for package in files if (version := _version(package)) and not version.is_prerelease})
    pure = any(package.filename.endswith("-none-any.whl") for package in files)
    if not versions or versions[-1] >= bound or not pure:
        return None
    return Override(
        requirement=name,
        why=f"vLLM {release.version} asks for {name}>={bound}; the newest that the package index has is {versions[-1]}",
    )


def listed(project: str, index: str) -> list[DistributionPackage]:
    """The files of a project in a package index. Raises NetworkError."""
    try:
        with new_session() as session:
            return project_files(session, index, project)
    except TransferError as error:
        raise NetworkError(
            f"cannot read {project} in the package index",
            id="stack-index-unreadable",
            where=redact(index),
            cause=error.detail,
        ) from error


def _is_version(package: DistributionPackage, version: str) -> bool:
    return _version(package) == Version(version)


def _version(package: DistributionPackage) -> Version | None:
    try:
        return Version(package.version or "")
    except ValueError:  # InvalidVersion, or a number that is too long
        return None


def _fits(package: DistributionPackage, tags: Sequence[Tag]) -> bool:
    parts = wheel_name(package.filename)
    return parts is not None and not parts[3].isdisjoint(tags)
