"""Resolves wheels with uv, and selects for each version the one file that fits the target best."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import ValidationError
from uv import find_uv_bin

from builder.engine.process import output
from builder.errors import InvalidError, NetworkError, PinError, UsageError
from builder.inputs.fetch import new_session
from builder.inputs.index import project_files
from builder.inputs.mirrors import redact, without_logins
from builder.inputs.transfer import TIMEOUT, TransferError, check_status, transfer_errors
from builder.jsontext import first_problem
from builder.model.lock import Wheel, WheelRequest
from builder.parallel import every
from builder.versions import python_release, wheel_name

if TYPE_CHECKING:
    import requests
    from pypi_simple import DistributionPackage

_OLDEST_GLIBC = {"aarch64": 17, "x86_64": 5}
_SECONDS = 900
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def resolve_wheels(request: WheelRequest, present: Sequence[Wheel], index: str) -> tuple[Wheel, ...]:
    """The wheels that `request` resolves to today, sorted by name.

    present: wheels that the target already has; they constrain the resolution and are left out of the result. index:
    the address of the package index. Raises UsageError without uv, PinError when the request cannot be resolved,
    NetworkError.
    """
    bound = [f"{wheel.name}=={wheel.version}" for wheel in present]
    pinned = pinned_versions(request, index, bound)
    excluded = {wheel.name for wheel in present}
    wanted = [(name, version) for name, version in pinned.items() if name not in excluded]
    return _files(wanted, target_tags(request.python, request.platform), index, request.exclude_newer)


def pinned_versions(request: WheelRequest, index: str, bound: Sequence[str] = ()) -> dict[str, Version]:
    """The versions that a request resolves to today, by name; no file is selected. bound: more constraints.

    Raises as `resolve_wheels` does.
    """
    with tempfile.TemporaryDirectory(prefix="builder-uv-") as folder:
        Path(folder, "requirements.in").write_text("\n".join(request.requirements) + "\n")
        Path(folder, "constraints.txt").write_text("\n".join([*request.constraints, *bound]) + "\n")
        words = ["requirements.in", "--constraints", "constraints.txt"]
        if request.overrides:
            lines = [override.requirement for override in request.overrides]
            Path(folder, "overrides.txt").write_text("\n".join(lines) + "\n")
            words += ["--overrides", "overrides.txt"]
        if request.exclude_newer:
            words += ["--exclude-newer", request.exclude_newer]
        words += ["--python-version", request.python, "--python-platform", request.platform]
        words += ["--only-binary", ":all:"]
        # Any interpreter works; without this option uv downloads one of the target's version.
        words += ["--python", sys.executable]
        words += [] if request.dependencies else ["--no-deps"]
        what = f"{', '.join(request.requirements)} for Python {request.python} on {request.platform}"
        advice = "correct the requirements or constraints in recipes/locks/requests.yaml"
        return dict(parse_pins(uv_compile(words, Path(folder), index, what=what, advice=advice)))


def uv_compile(words: Sequence[str], folder: Path, index: str, *, what: str, advice: str) -> str:
    """The output of `uv pip compile`, run in `folder` with `index` as its only index whatever this machine configures.

    words: its arguments. what, advice: for the error. Raises UsageError without uv, PinError when uv cannot resolve.
    """
    command = [uv_program(), "pip", "compile", *words, *_UV_OPTIONS]
    try:
        done = output(command, folder=folder, env=_uv_environment(index), timeout=_SECONDS)
    except subprocess.SubprocessError as error:
        raise NetworkError("uv has no result", id="uv-no-result", where=redact(index), cause=str(error)) from None
    if done.status:
        cause = without_logins(" ".join(done.errors.split()))
        raise PinError(f"uv cannot resolve {what}", id="lock-wheels-unresolvable", cause=cause, next=advice)
    return done.text


_UV_OPTIONS = ("--no-header", "--no-annotate", "--no-config", "--no-python-downloads", "--quiet")
_UV_KEPT = (
    *("UV_CACHE_DIR", "UV_HTTP_TIMEOUT", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_CONCURRENT_DOWNLOADS"),
    # The workflow `lock` waits some days before it takes a new release.
    "UV_EXCLUDE_NEWER",
)


def _uv_environment(index: str) -> dict[str, str]:
    """The environment for uv with `index` as its only index, without other uv settings of this machine.

    Not an argument: the address may hold a password, and other users can read a command line.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("UV_") or k in _UV_KEPT}
    return {**kept, "UV_DEFAULT_INDEX": index, "NO_COLOR": "1"}


def parse_pins(text: str) -> Iterator[tuple[str, Version]]:
    """(normalised name, version) of each `name==version` line of a requirements file."""
    for line in text.splitlines():
        if line.strip() and not line.startswith(("#", "-")):
            requirement = Requirement(line)
            (specifier,) = requirement.specifier
            yield canonicalize_name(requirement.name), Version(specifier.version)


def uv_program() -> str:
    """The path of the uv that is installed with this package. Raises UsageError."""
    try:
        return find_uv_bin()
    except FileNotFoundError:
        raise UsageError("uv is missing; it resolves wheels", id="uv-missing", next="pip install uv") from None


def target_tags(python: str, platform: str) -> list[Tag]:
    """The wheel tags that CPython `python` ("3.13") supports on `platform` ("aarch64-manylinux_2_39"), best first."""
    match = re.fullmatch(r"(aarch64|x86_64)-manylinux_2_([0-9]{1,3})", platform)
    if not match:
        raise InvalidError(
            f"wheels cannot be locked for the platform {platform}",
            id="wheel-platform-unknown",
            next="use a platform such as aarch64-manylinux_2_39",
        )
    machine, newest = match[1], int(match[2])
    platforms = []
    for minor in range(newest, _OLDEST_GLIBC[machine] - 1, -1):
        platforms.append(f"manylinux_2_{minor}_{machine}")
        if minor in _LEGACY:
            platforms.append(f"{_LEGACY[minor]}_{machine}")
    platforms.append(f"linux_{machine}")
    version = python_release(python)
    interpreter = f"cp{version[0]}{version[1]}"
    return [
        *cpython_tags(version, abis=[interpreter], platforms=platforms),
        *compatible_tags(version, interpreter=interpreter, platforms=platforms),
    ]


def best_wheel(files: Iterable[str], version: Version, tags: Sequence[Tag]) -> str | None:
    """The wheel of `version` among the file names `files` that pip would rank first; None if none fits."""
    rank = {tag: place for place, tag in enumerate(tags)}
    best: tuple[int, Any, str] | None = None
    for file in files:
        if (parts := wheel_name(file)) is None:
            continue
        _, found, build, supported = parts
        places = [rank[tag] for tag in supported if tag in rank]
        if found != version or not places:
            continue
        candidate = (-min(places), build, file)
        if best is None or candidate > best:
            best = candidate
    return best[2] if best else None


def _files(
    wanted: Sequence[tuple[str, Version]], tags: Sequence[Tag], index: str, newest: str | None
) -> tuple[Wheel, ...]:
    until = datetime.fromisoformat(newest) if newest else None
    try:
        with new_session() as session:
            return tuple(every(lambda pin: _wheel(session, index, pin[0], pin[1], tags, until), sorted(wanted), 8))
    except TransferError as error:
        raise NetworkError(
            "cannot read the package index", id="wheel-index-unreadable", where=redact(index), cause=error.detail
        ) from error


def _wheel(
    session: requests.Session, index: str, name: str, version: Version, tags: Sequence[Tag], until: datetime | None
) -> Wheel:
    packages = project_files(session, index, name)
    files = {
        package.filename: package
        for package in packages
        if not package.is_yanked and (until is None or (package.upload_time and package.upload_time <= until))
    }
    file = best_wheel(files, version, tags)
    if file is None:
        raise PinError(
            f"{name} {version} has no wheel for the target",
            id="wheel-missing",
            next="constrain it to a version that has one",
        )
    package = files[file]
    sha256 = (package.digests or {}).get("sha256")
    if not sha256:
        raise PinError(
            f"the package index has no sha256 for {file}", id="wheel-hash-missing", next="use an index that has it"
        )
    size = package.size if package.size is not None else _size(session, package)
    try:
        return Wheel(name=name, version=str(version), file=file, sha256=sha256, size=size)
    except ValidationError as error:
        raise NetworkError(
            f"the package index describes {file!a} as no lock can hold it",
            id="wheel-entry-malformed",
            cause=first_problem(error),
        ) from None


def _size(session: requests.Session, package: DistributionPackage) -> int:
    """The size of a file in bytes, from a HEAD request: older indexes do not list sizes."""
    with transfer_errors():
        headers = {"Accept-Encoding": "identity"}
        answer = session.head(package.url, allow_redirects=True, headers=headers, timeout=TIMEOUT)
        check_status(answer)
    try:
        return int(answer.headers["Content-Length"])
    except (KeyError, ValueError):
        raise NetworkError(f"the package index has no size for {package.filename}", id="wheel-size-missing") from None
