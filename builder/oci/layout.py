"""OCI image layouts: a folder that holds an image, as skopeo, buildah, podman and crane read it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from builder.atomic import write_file
from builder.digest import Digest
from builder.errors import UsageError
from builder.jsontext import read_json
from builder.oci.assemble import Image, ImageLayer
from builder.oci.manifest import OCI_INDEX, OCI_MANIFEST
from builder.store.blobs import disk_error
from builder.store.store import Store

_NAME = "org.opencontainers.image.ref.name"
_MARKER = b'{"imageLayoutVersion":"1.0.0"}'
"""The content of the file oci-layout."""

BlobSource = Callable[[ImageLayer], Iterator[bytes]]
"""Returns the bytes of a layer of the base, verified."""


def write_layout(image: Image, store: Store, folder: Path, *, name: str, base_blob: BlobSource | None = None) -> None:
    """Write the image into the layout at `folder`, which is created if needed, under the reference name `name`.

    Blobs are hard-linked from the store, or copied where a link is not possible. The index is replaced last and
    atomically: a reader sees the old image or the new one. Raises UsageError for a folder that holds something else.
    """
    prepare(folder)
    try:
        (folder / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
        for layer in image.layers:
            target = folder / layer.digest.path
            if target.exists() and target.stat().st_size == layer.size:
                continue
            if layer.of_base:
                assert base_blob is not None
                _write_chunks(target, base_blob(layer))
            else:
                store.verify(layer.digest)
                _link(store.blob(layer.digest), target)
        write_file(folder / image.config_digest.path, image.config)
        write_file(folder / image.digest.path, image.manifest)
        os_name, architecture = (json.loads(image.config)[key] for key in ("os", "architecture"))
        platform = {"architecture": architecture, "os": os_name}
        list_entry(folder, image.digest, len(image.manifest), name, platform=platform)
    except OSError as error:
        raise disk_error(error, folder, "oci:DIR") from error


def prepare(folder: Path, option: str = "--output oci:DIR") -> None:
    """Create the folder of a layout. Raises UsageError for a folder that holds something else.

    option: the option or command that names the folder, for error messages.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError("is a file, not a folder", id="layout-is-file", where=str(folder))
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "oci-layout").exists():
        raise UsageError(
            "is not empty and not an OCI layout",
            id="layout-folder-occupied",
            where=str(folder),
            next=f"name a new folder: {option}",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, folder, option.rpartition(" ")[2]) from error


def list_entry(folder: Path, digest: Digest, size: int, name: str, **more: Any) -> None:
    """Add a manifest of the layout to the index under `name`; it replaces a manifest of the same name.

    The index is replaced atomically. more: further keys of the descriptor. Raises UsageError for a damaged index.
    """
    annotations = {_NAME: name}
    entry = {"mediaType": OCI_MANIFEST, "digest": digest, "size": size, **more, "annotations": annotations}
    others = [item for item in read_index(folder) if item.get("annotations", {}).get(_NAME) != name]
    listed = sorted([*others, entry], key=lambda item: str(item.get("annotations", {}).get(_NAME, "")))
    write_file(folder / "oci-layout", _MARKER)
    _write_index(folder, listed)


def begin(folder: Path) -> None:
    """Make a prepared folder an empty layout, unless it is a layout already. Raises OSError."""
    if not (folder / "index.json").exists():
        _write_index(folder, [])
    if not (folder / "oci-layout").exists():
        write_file(folder / "oci-layout", _MARKER)


def _write_index(folder: Path, listed: list[dict[str, Any]]) -> None:
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": listed}
    write_file(folder / "index.json", json.dumps(index, indent=1).encode())


def read_index(folder: Path) -> list[dict[str, Any]]:
    """The descriptors in the index of a layout; none when it has no index. Raises UsageError for a damaged index."""
    if not (folder / "index.json").exists():
        return []
    try:
        found = read_json(folder / "index.json")["manifests"]
        if isinstance(found, list) and all(isinstance(item.get("annotations", {}), dict) for item in found):
            return found
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        pass
    raise UsageError("index.json is damaged", id="layout-index-damaged", where=str(folder), next="name a new folder")


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except FileExistsError:
        return
    except OSError:
        with source.open("rb") as file:
            _write_chunks(target, iter(lambda: file.read(1 << 20), b""))


def _write_chunks(target: Path, chunks: Iterator[bytes]) -> None:
    descriptor, name = tempfile.mkstemp(prefix=".partial-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
        Path(name).chmod(0o644)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
