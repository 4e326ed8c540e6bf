"""Parses versions for comparison: semantic ones (docker, buildah, drivers, NCCL), PEP 440 and ELF symbol versions.

No other module compares versions as text or splits them into numbers.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from packaging.version import Version

if TYPE_CHECKING:
    import semver
    from packaging.tags import Tag

_LONGEST_NAME, _MOST_TAGS = 255, 100
"""Characters of a file's name, which no file system exceeds, and tags that a wheel's name stands for."""
_NUMBERS = re.compile(r"(?<![\w.])v?(\d{1,18})\.(\d{1,18})(?:\.(\d{1,18}))?")


def semantic(text: str) -> semver.Version | None:
    """The first version in `text`: of docker, buildx, buildah, an NVIDIA driver, NCCL; None without one.

    Only the numbers count: a missing patch is 0, and a suffix of a vendor or distribution ("+dfsg1", "-dev", NCCL's
    "-1") is dropped, because it does not change the program's features. Leading zeros, which Semantic Versioning
    forbids but NVIDIA writes, are dropped as well: driver 580.95.05 is 580.95.5, and older than 580.142.
    """
    # Imported here: no plan and no listing needs it, and it takes 25 ms.
    import semver

    found = _NUMBERS.search(text)
    return semver.Version(*(int(part or 0) for part in found.groups())) if found else None


def at_least(text: str, oldest: str) -> bool:
    """Whether `text` has a semantic version that is not older than `oldest`; False when either has none."""
    have, wanted = semantic(text), semantic(oldest)
    return have is not None and wanted is not None and have >= wanted


def nccl_version(code: int) -> str:
    """The version in an integer of ncclGetVersion: 22907 is 2.29.7, 2804 is 2.8.4.

    NCCL_VERSION in nccl.h: up to 2.8 major * 1000 + minor * 100 + patch, from 2.9 on major * 10000 + minor * 100 +
    patch.
    """
    # Imported here, as in `semantic`.
    import semver

    major = code // (1000 if code < 10000 else 10000)
    minor, patch = divmod(code - major * (1000 if code < 10000 else 10000), 100)
    return str(semver.Version(major, minor, patch))


def same_nccl(version: str, wanted: str) -> bool:
    """Whether two NCCL versions are the same release; "2.29.7-1" is revision 1 of the packaging of 2.29.7."""
    have = semantic(version)
    return have is not None and have == semantic(wanted)


@lru_cache(1024)
def python_version(text: str | None) -> Version:
    """A version as PEP 440 compares it (vLLM's, a wheel's), up to its first hyphen.

    A missing or invalid version compares as 0.
    """
    try:
        return Version((text or "0").partition("-")[0])
    except ValueError:  # InvalidVersion, or a number that is too long
        return Version("0")


def is_version(text: str) -> bool:
    """Whether the text is a version of PEP 440."""
    try:
        Version(text)
    except ValueError:
        return False
    return True


def wheel_name(file: str) -> tuple[str, Version, tuple[Any, ...], frozenset[Tag]] | None:
    """Name, version, build and tags in the name of a wheel's file; None for any other name.

    A name of 6 KB can stand for 64 million tags: one for each interpreter, ABI and platform in it.
    """
    tags = math.prod(part.count(".") + 1 for part in file.split("-")[-3:])
    if len(file) > _LONGEST_NAME or tags > _MOST_TAGS:
        return None
    # Imported here: no plan and no listing needs it.
    from packaging.utils import parse_wheel_filename

    try:
        return parse_wheel_filename(file)
    except ValueError:  # InvalidWheelFilename, or a number that is too long
        return None


def python_release(text: str) -> tuple[int, ...]:
    """The numbers of a PEP 440 version: (3, 13) of "3.13". Raises ValueError for an invalid version."""
    return Version(text).release


def symbol_version(name: str) -> Version:
    """The version of an ELF symbol's version name: 2.38 of GLIBC_2.38, 0 of GLIBC_PRIVATE."""
    return Version(".".join(re.findall(r"\d{1,18}", name)) or "0")


def debian_version(text: str) -> tuple[Any, ...]:
    """A key that sorts versions of Debian packages as dpkg does: deb-version(7)."""
    epoch, _, rest = text.rpartition(":")
    upstream, hyphen, revision = rest.rpartition("-")
    return tuple(map(_part, (epoch or "0", upstream if hyphen else rest, revision if hyphen else "0")))


def _part(text: str) -> tuple[tuple[Any, ...], ...]:
    """Other characters and numbers in turns. A tilde comes before the end of the part, letters before the rest; a
    number is its length and its digits, because it may be too long for an int."""
    return tuple(
        (
            *(-1 if letter == "~" else ord(letter) + 256 * (not letter.isalpha()) for letter in word),
            0,
            len(digits),
            digits,
        )
        for word, number in re.findall(r"([^0-9]*)([0-9]*)", text)
        for digits in [number.lstrip("0")]
    )
