"""The control files of a Debian package, control and conffiles: deb-control(5), Debian Policy 5.1 and 5.6."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .entry import UnpackError

_FIELD = re.compile(r"([!\"$-,./0-9;-~][!-9;-~]*):[ \t]*([^\n]*)")
"""The first line of a field. A name has no colon, and does not begin with `#` or `-`."""
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_VALUES = {
    "package": re.compile(r"[a-z0-9][a-z0-9+.-]+"),
    "version": re.compile(r"([0-9]+:)?[0-9][A-Za-z0-9.+:~-]*"),
    "architecture": re.compile(r"[a-z0-9][a-z0-9-]*"),
    "multi-arch": re.compile(r"(no|same|foreign|allowed)?"),
}
_OF_DPKG = ("status", "config-version", "conffiles", "triggers-pending", "triggers-awaited")
"""The fields that dpkg itself writes into its database."""


@dataclass(frozen=True)
class Control:
    """A valid control file. text: its lines, without empty ones at the end. fields: value by name in small letters."""

    text: str
    fields: Mapping[str, str]

    @property
    def package(self) -> str:
        """The package's name."""
        return self.fields["package"]

    @property
    def name(self) -> str:
        """The name of the package's files in dpkg's database."""
        several = self.fields.get("multi-arch") == "same"
        return f"{self.package}:{self.fields['architecture']}" if several else self.package

    def installed(self) -> str:
        """The package's paragraph in dpkg's status file."""
        lines = self.text.split("\n")
        place = next(number for number, line in enumerate(lines) if line.lower().startswith("package:"))
        return "\n".join([*lines[: place + 1], "Status: install ok installed", *lines[place + 1 :]]) + "\n"


def parse(text: str, owner: str) -> Control:
    """A control file's fields. owner: the package's file, for errors. Raises UnpackError for what dpkg refuses."""
    text = text.strip("\n")
    found_lines: dict[str, list[str]] = {}
    last = ""
    for line in text.split("\n"):
        if _CONTROL_CHARACTER.search(line):
            raise _invalid(owner, f"a control character in {line!r}")
        if line[:1] in (" ", "\t") and line.strip() and last:
            found_lines[last].append(line)
            continue
        found = _FIELD.fullmatch(line)
        if not found:
            raise _invalid(owner, f"{line!r} is neither a field nor the continuation of one")
        last = found[1].lower()
        if last in found_lines or last in _OF_DPKG:
            raise _invalid(owner, f"the field {found[1]} is there twice, or is one of dpkg's own")
        found_lines[last] = [found[2].rstrip()]
    fields = {name: "\n".join(lines) for name, lines in found_lines.items()}
    for name, pattern in _VALUES.items():
        value = fields.get(name, "")
        if not pattern.fullmatch(value):
            raise _invalid(owner, f"the field {name} is {value!r}")
    return Control(text, fields)


def conffiles_of(text: str, owner: str) -> tuple[str, ...]:
    """The paths of a package's conffiles. A line may carry a flag ("remove-on-upgrade"): that file is not installed."""
    paths = tuple(line.rstrip() for line in text.split("\n") if line.startswith("/"))
    for path in paths:
        if _CONTROL_CHARACTER.search(path) or ".." in path.split("/"):
            raise _invalid(owner, f"the conffile {path!r}")
    return paths


def _invalid(owner: str, what: str) -> UnpackError:
    return UnpackError(f"{owner}: dpkg would refuse its control files: {what}", id="deb-control-invalid")
