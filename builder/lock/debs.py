"""Resolves Debian packages with apt, in a folder of its own: the packages of this machine have no effect."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from pydantic import ValidationError

from builder.engine.process import Captured, output
from builder.errors import NetworkError, PinError, UsageError
from builder.inputs.mirrors import deb822, redact, without_logins
from builder.jsontext import first_problem
from builder.model.lock import Deb, DebRequest
from builder.versions import debian_version

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""The archive's keys, from the package debian-archive-keyring of Debian and Ubuntu."""

_SECONDS = 900
_LONGEST = 64 << 20
"""Bytes of the descriptions of all packages of a request."""
_MEMORY = 1 << 30
"""Bytes that apt may have; Debian's lists take a tenth of it."""

_CONFIG = """\
Dir::Etc "{folder}/etc";
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Log "{folder}/log";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Install-Recommends "false";
APT::Install-Suggests "false";
APT::Sandbox::User "root";
APT::Get::AllowUnauthenticated "false";
Acquire::Languages "none";
Acquire::Retries "1";
"""


def resolve_debs(
    request: DebRequest, roots: Sequence[str], present: Sequence[Deb] = (), *, keyring: Path = KEYRING
) -> tuple[Deb, ...]:
    """The packages that apt would install for `request`, without recommended ones, sorted by name.

    roots: addresses of archives; the first that answers is used. present: packages that the target has already; their
    versions stay as they are. Raises UsageError without apt or keyring, PinError when no root is known or apt cannot
    satisfy the request, NetworkError when no root answers.
    """
    what = f"{request.suite} {request.architecture}"
    if not roots:
        raise PinError(
            f"no mirror of the Debian archive is configured for {what}",
            id="deb-mirror-unknown",
            next="set BUILDER_DEB_MIRROR",
        )
    if not keyring.exists():
        raise UsageError(
            f"{keyring} is missing", id="deb-keyring-missing", next="install the package debian-archive-keyring"
        )
    failures = []
    for root in roots:
        with tempfile.TemporaryDirectory(prefix="builder-apt-") as name:
            folder = Path(name)
            _prepare(folder, request, root, keyring)
            update = _apt(folder, "apt-get", "-qq", "-o", "APT::Update::Error-Mode=any", "update")
            if update.status:
                failures.append(f"{redact(root)}: {_last_line(update.errors)}")
                continue
            return _resolve(folder, request, present)
    raise NetworkError(f"cannot read the package lists of {what}", id="deb-lists-unreadable", cause="; ".join(failures))


def _prepare(folder: Path, request: DebRequest, root: str, keyring: Path) -> None:
    for part in ("etc/apt.conf.d", "etc/preferences.d", "etc/trusted.gpg.d", "etc/sources.list.d", "log"):
        (folder / part).mkdir(parents=True)
    for part in ("state/lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "etc/sources.list").write_text(f"deb [signed-by={keyring}] {root} {request.suite} main\n")
    (folder / "apt.conf").write_text(_CONFIG.format(folder=folder, architecture=request.architecture))


def _resolve(folder: Path, request: DebRequest, present: Sequence[Deb]) -> tuple[Deb, ...]:
    if present:
        shown = _apt(folder, "apt-cache", "show", "--", *sorted(deb.package for deb in present))
        (folder / "status").write_text(installed(shown.text, present), "utf-8")
    wanted = [package.partition(">=") for package in request.packages]
    options = ("-y", "--no-upgrade", "--no-remove", "--print-uris")
    result = _apt(folder, "apt-get", "-qq", *options, "install", "--", *(name for name, _, _ in wanted))
    if result.status:
        raise PinError(
            f"apt cannot satisfy the request for {request.suite} {request.architecture}",
            id="deb-request-unsatisfiable",
            cause=_last_line(result.errors),
            next="correct the packages in recipes/locks/requests.yaml",
        )
    have = {deb.package: deb.version for deb in present}
    # apt may install the same version anew: it compares more than versions.
    names = [(name, version) for name, version in parse_uris(result.text) if have.get(name) != version]
    if changed := [(name, version) for name, version in names if name in have]:
        name, version = changed[0]
        raise PinError(
            f"{', '.join(request.packages)} needs {name} {version}, and {', '.join(request.without or ())} has another",
            id="deb-version-held",
            cause=f"it holds {name} {have[name]}, which stays as it is",
            next="choose other packages, or lock that section again",
        )
    have |= dict(names)
    for name, _, oldest in wanted:
        if oldest and (name not in have or debian_version(have[name]) < debian_version(oldest)):
            raise PinError(
                f"{name} {oldest} or newer is not in {request.suite}",
                id="deb-version-too-old",
                cause=f"it has {have.get(name) or 'no package of that name'}",
                next="ask for an older version",
            )
    shown = _apt(folder, "apt-cache", "show", "--no-all-versions", "--", *(f"{name}={ver}" for name, ver in names))
    return debs_of(shown.text, names)


def installed(stanzas: str, present: Sequence[Deb]) -> str:
    """A dpkg status file in which `present` is installed. stanzas: what the archive says of these names today.

    What a package needs is left out: it is there, and an archive that has other versions by now would say it wrongly.
    """
    named: dict[str, dict[str, str]] = {}
    exact: dict[tuple[str, str], dict[str, str]] = {}
    for fields in deb822(stanzas):
        named.setdefault(fields.get("Package", ""), fields)
        exact.setdefault((fields.get("Package", ""), fields.get("Version", "")), fields)
    paragraphs = []
    for deb in present:
        same = exact.get((deb.package, deb.version))
        fields = same or named.get(deb.package, {})
        kept = ("Multi-Arch", "Provides", "Conflicts", "Breaks") if same else ("Multi-Arch", "Provides")
        lines = [f"Package: {deb.package}", "Status: install ok installed", "Maintainer: none"]
        lines += [f"Architecture: {deb.architecture}", f"Version: {deb.version}", "Description: present"]
        lines += [f"{name}: {' '.join(fields[name].split())}" for name in kept if name in fields]
        paragraphs.append("\n".join(lines) + "\n")
    return "\n".join(paragraphs)


def parse_uris(text: str) -> list[tuple[str, str]]:
    """(package, version) of each line of `apt-get --print-uris`: `'URL' NAME_VERSION_ARCH.deb SIZE HASH`."""
    files = re.findall(r"^'[^']+' (\S+)\.deb \d+", text, re.MULTILINE)
    return [(parts[0], unquote(parts[1])) for parts in (file.split("_") for file in files) if len(parts) > 1]


def debs_of(stanzas: str, wanted: Sequence[tuple[str, str]]) -> tuple[Deb, ...]:
    """The entries of the `wanted` (package, version) in `apt-cache show`, sorted. Raises PinError if any is missing."""
    found = {(fields.get("Package", ""), fields.get("Version", "")): fields for fields in deb822(stanzas)}
    if missing := [name for name, version in wanted if (name, version) not in found]:
        raise PinError(
            f"apt does not describe {', '.join(missing)}",
            id="deb-undescribed",
            cause="the package lists are inconsistent",
        )
    return tuple(_deb(name, found[name, version]) for name, version in sorted(wanted))


def _deb(name: str, fields: dict[str, str]) -> Deb:
    size = fields.get("Size", "")
    try:
        return Deb.model_validate(
            {
                "package": name,
                "version": fields["Version"],
                "architecture": fields.get("Architecture"),
                "path": fields.get("Filename"),
                "sha256": fields.get("SHA256"),
                "size": int(size) if re.fullmatch("[0-9]{1,16}", size) else None,
            }
        )
    except ValidationError as error:
        raise PinError(
            f"the Debian archive describes {name} as no lock can hold it",
            id="deb-entry-malformed",
            cause=first_problem(error),
        ) from None


def _apt(folder: Path, *command: str) -> Captured:
    environ = {**os.environ, "APT_CONFIG": str(folder / "apt.conf"), "LC_ALL": "C"}
    try:
        return output(command, env=environ, timeout=_SECONDS, limit=_LONGEST, memory=_MEMORY)
    except FileNotFoundError:
        raise UsageError(
            f"{command[0]} is missing", id="apt-missing", next="lock Debian packages on Debian or Ubuntu"
        ) from None
    except subprocess.SubprocessError as error:
        raise NetworkError(f"{command[0]} has no result", id="apt-no-result", cause=str(error)) from None


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("E:")] or text.splitlines()
    return without_logins(lines[0]) if lines else "no message"
