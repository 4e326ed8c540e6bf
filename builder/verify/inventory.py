"""Reads what is installed in an image: the packages of dpkg and the Python distributions, from its files alone."""

from __future__ import annotations

import email
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from builder.attest.inventory import Found, Inventory, Part, deb_part, inventory, python_part
from builder.attest.licences import debian_licences, python_licences
from builder.errors import InvalidError, PinError
from builder.model.plan import Plan
from builder.produce.image import Built
from builder.smoke.image.opened import OpenedImage, open_image
from builder.smoke.image.tree import ImageTree, PathNotFound
from builder.store.store import Store

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
_FILE, _DATABASE = 4 << 20, 64 << 20
"""Bytes that are read of one file, and of dpkg's database."""
_MOST = 20_000
"""Packages of an image; the largest of a vendor has 900."""
_CREATED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_NEVER = "1970-01-01T00:00:00Z"
_FIELD = re.compile(r"([!-9;-~]+):[ \t]*(.*)")


def image_inventory(image: OpenedImage, title: str, plan: Plan | None) -> Inventory:
    """What an image consists of. plan: that made it, to add files, hashes, sources and the toolchain.

    The base of a plan is one part of the inventory: its layers are not read, also when they are on this machine, so
    that equal images have equal inventories. Raises InvalidError, NetworkError or PinError for a damaged layer.
    """
    base, below = None, 0
    if plan is not None and plan.base_image is not None and plan.base_manifest is not None:
        base = (plan.base_image, plan.base_manifest)
        below = len(image.layers) - sum(layer.producer != "config" for layer in plan.layers)
    with tempfile.TemporaryDirectory(prefix="builder-sbom-") as folder:
        tree = ImageTree.of_image(image, Path(folder), _KEPT, only=range(max(0, below), len(image.layers)))
        missing = next((blob for blob in tree.absent if blob in image.layers[max(0, below) :]), None)
        if missing is not None:
            raise PinError("a layer of the image is not in the store", id="image-layer-missing", where=missing.digest)
        parts = [*_debs(tree), *_distributions(tree)]
    if len(parts) > _MOST:
        raise InvalidError("the image has too many packages", id="image-packages-too-many", where=image.digest)
    created = str(image.config.get("created"))
    return inventory(
        image.digest, title, created if _CREATED.fullmatch(created) else _NEVER, Found(tuple(parts), base), plan
    )


def built_inventory(built: Built, store: Store) -> Inventory:
    """What a built image consists of. Raises BuilderError."""
    image = open_image(store.root, built.image.digest)
    image = image.knowing({layer.digest: layer.diff_id for layer in built.image.layers})
    return image_inventory(image, built.plan.recipe, built.plan)


def _debs(tree: ImageTree) -> Iterator[Part]:
    files = [_STATUS, *(path for path in tree.match(f"{_STATUS}.d/*") if not path.endswith(".md5sums"))]
    distribution = _distribution(tree)
    for path in files:
        for fields in installed_packages(_text(tree, path, _DATABASE)):
            licences = debian_licences(_text(tree, f"usr/share/doc/{fields['Package']}/copyright", _FILE))
            yield deb_part(fields, distribution, licences)


def installed_packages(text: str) -> Iterator[dict[str, str]]:
    """The fields of every installed package in a status file of dpkg; the first line of each field."""
    for paragraph in re.split(r"\n[ \t]*\n", text):
        lines = (_FIELD.fullmatch(line) for line in paragraph.split("\n"))
        fields = {found[1]: found[2] for found in lines if found}
        # In status.d, of images without dpkg, packages have no status.
        state = fields.get("Status", "install ok installed").split()
        if "Package" in fields and "Version" in fields and state[-1:] == ["installed"]:
            yield fields


def _distributions(tree: ImageTree) -> Iterator[Part]:
    patterns = ("*-packages/*.dist-info/METADATA", "*-packages/*.egg-info", "*-packages/*.egg-info/PKG-INFO")
    for path in sorted({path for pattern in patterns for path in tree.match(pattern)}):
        folder = re.match(r"(.*-packages)/[^/]+(?:/METADATA|/PKG-INFO)?", path)
        if folder is None or folder[0] != path or tree.entries[path].kind not in ("file", "symlink"):
            # Vendored distributions (setuptools/_vendor) are not on sys.path.
            continue
        metadata = email.message_from_string(_text(tree, path, _FILE))
        name, version = str(metadata.get("Name") or ""), str(metadata.get("Version") or "")
        if name and version:
            yield python_part(name, version, python_licences(metadata))


def _distribution(tree: ImageTree) -> str:
    """ID of os-release(5): the namespace of the packages."""
    for path in ("etc/os-release", "usr/lib/os-release"):
        if found := re.search(r"^ID=[\"']?([a-z0-9._-]{1,40})[\"']?$", _text(tree, path, _FILE), re.MULTILINE):
            return found[1]
    return "debian"


def _text(tree: ImageTree, path: str, limit: int) -> str:
    """A text file, "" when there is none."""
    try:
        return tree.read(path, limit).decode("utf-8", "replace")
    except PathNotFound:
        return ""
