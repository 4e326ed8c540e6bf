"""What an image consists of: its Debian packages, Python distributions, sources and toolchain. Plain values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from packaging.utils import canonicalize_name

from builder.digest import Digest
from builder.model.inputs import Input
from builder.model.plan import Plan

Kind = Literal["deb", "python", "unpacked", "source", "base"]
"""unpacked: a wheel whose files are in the image without its metadata: not installed as a distribution. base: an image
below whose layers were not read."""

_ARCHIVE = re.compile(r"([^/]+)/([^/]+)/archive/(?:refs/tags/)?(.+)\.tar\.gz")
"""The path of a source archive on GitHub: owner, repository and tag."""


@dataclass(frozen=True, order=True)
class Part:
    """One component. purl: its package URL (https://github.com/package-url/purl-spec), its name in documents.

    file, sha256: the file that it was unpacked from, where the plan names it. repository, commit: of a source in git.
    licences: as the package declares them.
    """

    kind: Kind
    name: str
    version: str
    purl: str
    licences: tuple[str, ...] = ()
    file: str = ""
    sha256: str = ""
    repository: str = ""
    commit: str = ""


@dataclass(frozen=True)
class Inventory:
    """The parts of an image. created: RFC 3339, of its configuration. title: its name for people.

    toolchain: what compiled parts of the image; it is not in the image. compiled: the purls of these parts.
    """

    image: Digest
    title: str
    created: str
    parts: tuple[Part, ...]
    toolchain: tuple[Part, ...] = ()
    compiled: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all layers were read."""
        return all(part.kind != "base" for part in self.parts)


@dataclass(frozen=True)
class Found:
    """What the files of an image say: its packages and distributions as they are installed.

    base: reference and digest of an image below whose layers were not read.
    """

    parts: tuple[Part, ...]
    base: tuple[str, Digest] | None = None


@dataclass
class _Planned:
    """Inputs of a plan by what they install."""

    installed: dict[str, Input] = field(default_factory=dict)
    others: list[Part] = field(default_factory=list)


def inventory(image: Digest, title: str, created: str, found: Found, plan: Plan | None) -> Inventory:
    """The inventory of an image. plan: adds the files and hashes of packages, sources, and the toolchain."""
    parts = list(found.parts)
    toolchain: list[Part] = []
    compiled: list[str] = []
    if plan is not None:
        planned = _planned(plan)
        parts = [_with_file(part, planned.installed.get(part.purl)) for part in parts] + planned.others
        toolchain = [part_of(item) for layer in plan.used_toolchains for item in layer.inputs]
        compiled = [
            _of_source(item).purl
            for layer in plan.layers
            if layer.toolchain
            for item in layer.inputs
            if item.kind == "source"
        ]
    if found.base is not None:
        name, digest = found.base
        purl = _purl("oci", None, name.rpartition("/")[2].partition("@")[0], digest)
        parts.append(Part("base", name, digest, purl))
    return Inventory(image, title, created, _unique(parts), _unique(toolchain), tuple(sorted(set(compiled))))


def expected(plan: Plan) -> dict[str, str]:
    """What an SBOM of a plan's image lists at least, and of a hermetic image besides nothing: purl to SHA-256."""
    planned = _planned(plan)
    found = {purl: item.sha256 for purl, item in planned.installed.items()}
    return found | {part.purl: part.sha256 for part in planned.others}


def deb_part(fields: Mapping[str, str], distribution: str, licences: tuple[str, ...] = ()) -> Part:
    """An installed Debian package. fields: of its paragraph in dpkg's status. distribution: ID of os-release(5)."""
    name, version = fields["Package"], fields["Version"]
    purl = _purl("deb", distribution, name, version, arch=fields.get("Architecture", ""))
    return Part("deb", name, version, purl, licences)


def python_part(name: str, version: str, licences: tuple[str, ...] = ()) -> Part:
    """An installed Python distribution, as its metadata names it."""
    return Part("python", name, version, _purl("pypi", None, canonicalize_name(name), version), licences)


def _planned(plan: Plan) -> _Planned:
    found = _Planned()
    for layer in plan.layers:
        placed = {wheel["file"] for wheel in (layer.spec or {}).get("wheels", ()) if wheel.get("into")}
        for item in layer.inputs:
            if item.kind == "source":
                found.others.append(_of_source(item))
            elif item.kind == "wheel" and item.file in placed:
                found.others.append(_of_unpacked(item))
            elif layer.producer == "files":
                part = part_of(item)
                found.installed[part.purl] = item
    return found


def _with_file(part: Part, item: Input | None) -> Part:
    return replace(part, file=item.file, sha256=item.sha256) if item is not None else part


def part_of(item: Input) -> Part:
    """A locked input as the package that it is."""
    name, version = item.package, item.version
    if item.kind == "deb":
        architecture = item.file.removesuffix(".deb").rpartition("_")[2]
        part = deb_part({"Package": name, "Version": version, "Architecture": architecture}, "debian")
    elif item.kind == "wheel":
        part = python_part(name, version)
    else:
        part = _of_source(item)
    return _with_file(part, item)


def _of_unpacked(item: Input) -> Part:
    name, version = item.package, item.version
    purl = _purl("generic", None, name, version, checksum=item.digest)
    return Part("unpacked", name, version, purl, file=item.file, sha256=item.sha256)


def _of_source(item: Input) -> Part:
    name, version = item.package, item.version
    purl, repository = _purl("generic", None, name, version, checksum=item.digest), ""
    for place in item.locations:
        if place.kind == "github" and (named := _ARCHIVE.fullmatch(place.path)):
            purl, repository = _purl("github", named[1], named[2], named[3]), f"{named[1]}/{named[2]}"
        elif place.kind == "index":
            purl = _purl("pypi", None, place.path, version, file_name=item.file)
    return Part("source", name, version, purl, (), item.file, item.sha256, repository, item.commit or "")


def _purl(type: str, namespace: str | None, name: str, version: str, **qualifiers: str) -> str:
    from packageurl import PackageURL

    used = {key: value for key, value in qualifiers.items() if value}
    return PackageURL(type, namespace, name, version, used).to_string()


def _unique(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The parts by purl, sorted, each once."""
    found: dict[str, Part] = {}
    for part in sorted(parts):
        found.setdefault(part.purl, part)
    return tuple(sorted(found.values()))
