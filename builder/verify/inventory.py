"""Reads what is installed in an image: the packages of dpkg and the Python distributions, from its files alone."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from email.parser import HeaderParser
from itertools import chain
from pathlib import Path

from builder.attest.inventory import Found, Inventory, Part, deb_part, inventory, python_part
from builder.attest.licences import debian_licences, python_licences
from builder.digest import Digest
from builder.errors import InvalidError, PinError
from builder.model.plan import Plan, PlannedLayer
from builder.produce.image import Built
from builder.smoke.image.opened import OpenedImage, open_image
from builder.smoke.image.tree import ImageTree, PathNotFound
from builder.store.store import Store
from builder.unpack.bounds import Budget
from builder.unpack.entry import UnpackError
from builder.unpack.wheels import read_metadata

_STATUS = "var/lib/dpkg/status"
_KEPT = (
    _STATUS,
    # A file for each package, as in images without dpkg itself.
    f"{_STATUS}.d/*",
    "*-packages/*.dist-info/METADATA",
    "*-packages/*.egg-info",
    "*-packages/*.egg-info/PKG-INFO",
    "usr/share/doc/*/copyright",
    "etc/os-release",
    "usr/lib/os-release",
)
_FILE, DATABASE, _HEADERS = 1 << 20, 8 << 20, 8 << 20
"""Bytes that are read of one file, and characters of dpkg's database and of the headers of all METADATA files."""
_MOST, _LICENCES = 3_000, 20_000
"""Packages of an image, and their licences; the largest of a vendor has 900. The library of CycloneDX takes quadratic
time in them."""
_CREATED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_NEVER = "1970-01-01T00:00:00Z"
_LINE = re.compile(r"^(?:(Package|Version|Status|Architecture):[ \t]*(.*)|[ \t]*)$", re.MULTILINE)
"""A field, or the end of a paragraph."""


def image_inventory(
    image: OpenedImage, title: str, plan: Plan | None, known: Mapping[int, Sequence[Part]] | None = None
) -> Inventory:
    """What an image consists of. plan: that made it, to add files, hashes, sources and the toolchain.

    known: what is in some layers, by their number from 0; they are not read. The base of a plan is one part of the
    inventory: its layers are not read, also when they are on this machine, so that equal images have equal inventories.
    Raises InvalidError, NetworkError or PinError for a damaged layer.
    """
    base, below = None, 0
    if plan is not None and plan.base_image is not None and plan.base_manifest is not None:
        base, below = (plan.base_image, plan.base_manifest), _below(image, plan)
    given = known or {}
    wanted = [number for number in range(below, len(image.layers)) if number not in given]
    with tempfile.TemporaryDirectory(prefix="builder-sbom-") as folder:
        tree = ImageTree.of_image(image, Path(folder), _KEPT, only=wanted)
        if missing := next((image.layers[number] for number in wanted if not image.layers[number].present), None):
            raise PinError("a layer of the image is not in the store", id="image-layer-missing", where=missing.digest)
        found = chain(_debs(tree), _distributions(tree), *given.values())
        parts, licences = [], 0
        for part in found:
            parts.append(part)
            licences += len(part.licences)
            if len(parts) > _MOST or licences > _LICENCES:
                raise _too_many(image)
    created = str(image.config.get("created"))
    return inventory(
        image.digest, title, created if _CREATED.fullmatch(created) else _NEVER, Found(tuple(parts), base), plan
    )


def built_inventory(built: Built, store: Store) -> Inventory:
    """What a built image consists of. Raises BuilderError.

    A layer of wheels has the metadata of these wheels: if the store has them, their gigabytes are not unpacked.
    """
    image = open_image(store.root, built.image.digest)
    image = image.knowing({layer.digest: layer.diff_id for layer in built.image.layers})
    layers = [layer for layer in built.plan.layers if layer.producer != "config"]
    known: dict[int, Sequence[Part]] = {}
    # A file that replaces metadata is in an upper layer.
    if not any(".dist-info" in path for layer in layers for path in layer.replaces):
        for number, layer in enumerate(layers, _below(image, built.plan)):
            if (parts := _of_wheels(layer, store)) is not None:
                known[number] = parts
    return image_inventory(image, built.plan.recipe, built.plan, known)


def _below(image: OpenedImage, plan: Plan) -> int:
    """How many layers are those of the base."""
    return max(0, len(image.layers) - sum(layer.producer != "config" for layer in plan.layers))


def _of_wheels(layer: PlannedLayer, store: Store) -> list[Part] | None:
    """The distributions of a layer of wheels; None when it has other inputs, or the store lacks a wheel."""
    spec = layer.spec
    if spec is None or spec["debs"] or not spec["wheels"]:
        return None
    parts = []
    for wheel in spec["wheels"]:
        if wheel.get("into"):
            # Unpacked without its metadata.
            continue
        try:
            path = store.blob(Digest.from_hex(wheel["sha256"]))
            part = _of_metadata(read_metadata(path, wheel["file"], Budget(path.stat().st_size)))
        except (OSError, UnpackError):
            return None
        if part is None:
            return None
        parts.append(part)
    return parts


def _debs(tree: ImageTree) -> Iterator[Part]:
    files = [_STATUS, *(path for path in tree.match(f"{_STATUS}.d/*") if not path.endswith(".md5sums"))]
    distribution = _distribution(tree)
    # By the path that links lead to: many packages share a file.
    licences: dict[str, tuple[str, ...]] = {}
    left, packages = DATABASE, 0
    for path in files:
        left -= tree.stat(path).size if tree.exists(path) else 0
        if left < 0:
            # A text that is cut would hide packages.
            raise _too_many(tree.image)
        for fields in installed_packages(_text(tree, path, DATABASE)):
            packages += 1
            if packages > _MOST:
                raise _too_many(tree.image)
            real = _real(tree, f"usr/share/doc/{fields['Package']}/copyright")
            if real not in licences:
                licences[real] = debian_licences(_text(tree, real, _FILE))
            try:
                part = deb_part(fields, distribution, licences[real])
            except (ValueError, TypeError):  # a name that no package URL can hold
                continue
            yield part


def installed_packages(text: str) -> Iterator[dict[str, str]]:
    """The name, version, state and architecture of every installed package in a status file of dpkg."""
    fields: dict[str, str] = {}
    for found in chain(_LINE.finditer(text), (None,)):
        if found is not None and found[1]:
            fields[found[1]] = found[2]
            continue
        # In status.d, of images without dpkg, packages have no status.
        state = fields.get("Status", "install ok installed").split()
        if "Package" in fields and "Version" in fields and state[-1:] == ["installed"]:
            yield fields
        if fields:
            fields = {}


def _distributions(tree: ImageTree) -> Iterator[Part]:
    patterns = ("*-packages/*.dist-info/METADATA", "*-packages/*.egg-info", "*-packages/*.egg-info/PKG-INFO")
    seen: dict[str, Part | None] = {}
    left = _HEADERS
    for path in sorted({path for pattern in patterns for path in tree.match(pattern)}):
        folder = re.match(r"(.*-packages)/[^/]+(?:/METADATA|/PKG-INFO)?", path)
        if folder is None or folder[0] != path or tree.entries[path].kind not in ("file", "symlink"):
            # Vendored distributions (setuptools/_vendor) are not on sys.path.
            continue
        real = _real(tree, path)
        if real not in seen:
            header = _text(tree, real, _FILE).partition("\n\n")[0]
            left -= len(header)
            if left < 0 or len(seen) >= _MOST:
                raise _too_many(tree.image)
            seen[real] = _of_metadata(header)
        if (part := seen[real]) is not None:
            yield part


def _of_metadata(text: str) -> Part | None:
    """The distribution of a METADATA or PKG-INFO file; None without a name and a version."""
    # The header alone: a text may claim to have parts inside each other, which the parser would follow.
    metadata = HeaderParser().parsestr(text)
    name, version = str(metadata.get("Name") or ""), str(metadata.get("Version") or "")
    try:
        return python_part(name, version, python_licences(metadata)) if name and version else None
    except (ValueError, TypeError):  # a name that no package URL can hold
        return None


def _distribution(tree: ImageTree) -> str:
    """ID of os-release(5): the namespace of the packages."""
    for path in ("etc/os-release", "usr/lib/os-release"):
        if found := re.search(r"^ID=[\"']?([a-z0-9._-]{1,40})[\"']?$", _text(tree, path, _FILE), re.MULTILINE):
            return found[1]
    return "debian"


def _too_many(image: OpenedImage) -> InvalidError:
    return InvalidError("the image has too many packages", id="image-packages-too-many", where=image.digest)


def _real(tree: ImageTree, path: str) -> str:
    """The path that links lead to; the path itself when they lead nowhere."""
    try:
        return tree.resolve(path)
    except PathNotFound:
        return path


def _text(tree: ImageTree, path: str, limit: int) -> str:
    """A text file, "" when there is none."""
    try:
        return tree.read(path, limit).decode("utf-8", "replace")
    except PathNotFound:
        return ""
