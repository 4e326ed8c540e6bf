"""Licences as packages declare them: Debian's copyright files, and the metadata of Python distributions. Pure.

A licence is an SPDX expression where the package names one that SPDX knows, else the package's own name for it.
"""

from __future__ import annotations

import re
from email.message import Message
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from license_expression import Licensing

_LONGEST = 80
"""Characters of a licence's name. Some distributions put the whole text into the field License."""
_MOST = 100
"""Licences of one package; that of gcc has about 50."""
_FORMAT = re.compile(r"\AFormat:[ \t]*\S*copyright-format", re.IGNORECASE)
_LICENCE = re.compile(r"^License:[ \t]*([^\n]+)", re.IGNORECASE | re.MULTILINE)
_VERSIONED = re.compile(r"(L?GPL|AGPL|GFDL)-(\d+(?:\.\d+)?)(\+?)", re.IGNORECASE)
_DEBIAN = {
    "apache-2": "Apache-2.0",
    "artistic": "Artistic-1.0-Perl",
    "bsd-2-clause": "BSD-2-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "bsd-4-clause": "BSD-4-Clause",
    "expat": "MIT",
    "psf-2": "PSF-2.0",
}
"""Short names of Debian's copyright format 1.0 that SPDX writes in another way."""
_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}
"""Those whose licence is one of SPDX; that of the BSD classifier may be any of its kind."""


def debian_licences(copyright: str) -> tuple[str, ...]:
    """The licences in a copyright file of the machine-readable format; none in one of another form."""
    if not _FORMAT.match(copyright):
        return ()
    names = {name.strip() for name in _LICENCE.findall(copyright)}
    first = sorted(name for name in names if len(name) <= _LONGEST)[:_MOST]
    return tuple(sorted(set(map(_debian, first))))


def python_licences(metadata: Message) -> tuple[str, ...]:
    """The licences in the metadata of a distribution: its expression, else its field, else its classifiers."""
    if expression := _line(metadata.get("License-Expression")):
        return (known(expression) or expression,)
    if (named := _line(metadata.get("License"))) and named.upper() != "UNKNOWN":
        return (known(named) or named,)
    found = set()
    for text in metadata.get_all("Classifier", []):
        kind, _, name = str(text).partition(" :: ")
        if kind == "License" and (name := name.rpartition(" :: ")[2]) and name != "OSI Approved":
            found.add(_CLASSIFIERS.get(name, name[:_LONGEST]))
    return tuple(sorted(found))[:_MOST]


@cache
def known(name: str) -> str | None:
    """The SPDX expression that a name is, in SPDX's spelling; None when it has a part that SPDX does not list."""
    from license_expression import ExpressionError, ExpressionParseError

    try:
        parsed = _licensing().parse(name, validate=True, strict=True)
    except (ExpressionError, ExpressionParseError, RecursionError):
        return None
    text = str(parsed) if parsed is not None else ""
    return text if text and "LicenseRef-" not in text else None


@cache
def _licensing() -> Licensing:
    """SPDX's list of licences; reading it takes 0.2 s."""
    from license_expression import get_spdx_licensing

    return get_spdx_licensing()


def _debian(name: str) -> str:
    if found := _VERSIONED.fullmatch(name):
        version = found[2] if "." in found[2] else f"{found[2]}.0"
        name = f"{found[1].upper()}-{version}-{'or-later' if found[3] else 'only'}"
    return _DEBIAN.get(name.lower()) or known(name) or name


def _line(value: object) -> str:
    text = str(value or "").strip()
    return text if "\n" not in text and len(text) <= _LONGEST else ""
