"""OCI image layouts: a folder that holds an image, as skopeo, buildah, podman and crane read it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from builder.errors import UsageError
from builder.oci.blobs import disk_error
from builder.oci.image import Image, ImageLayer
from builder.oci.manifest import OCI_INDEX, OCI_MANIFEST
from builder.oci.store import Store

BlobSource = Callable[[ImageLayer], Iterator[bytes]]
"""Gives the bytes of a layer of the base, verified."""


def write_layout(image: Image, store: Store, folder: Path, *, name: str, base_blob: BlobSource | None = None) -> None:
    """Put the image into the layout at `folder`, made if need be, under the reference name `name`.

    Blobs are hard-linked from the store, or copied where links cannot reach. The index is replaced last and at once:
    whoever reads the folder meanwhile sees the old image or the new one. Raises UsageError for a folder that holds
    something else.
    """
    _prepare(folder)
    try:
        blobs = folder / "blobs" / "sha256"
        blobs.mkdir(parents=True, exist_ok=True)
        for layer in image.layers:
            target = blobs / layer.digest.removeprefix("sha256:")
            if target.exists() and target.stat().st_size == layer.size:
                continue
            if layer.of_base:
                assert base_blob is not None
                _write(target, base_blob(layer))
            else:
                _link(store.blob(layer.digest), target)
        _write(blobs / image.config_digest.removeprefix("sha256:"), iter((image.config,)))
        _write(blobs / image.digest.removeprefix("sha256:"), iter((image.manifest,)))
        _write(folder / "oci-layout", iter((b'{"imageLayoutVersion":"1.0.0"}',)))
        _write(folder / "index.json", iter((_index(folder, image, name),)))
    except OSError as error:
        raise disk_error(error, folder) from error


def _prepare(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UsageError("is a file, not a folder", where=str(folder))
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "oci-layout").exists():
        raise UsageError(
            "is not empty and not an OCI layout", where=str(folder), next="name a new folder: --output oci:DIR"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, folder) from error


def _index(folder: Path, image: Image, name: str) -> bytes:
    os_name, architecture = json.loads(image.config)["os"], json.loads(image.config)["architecture"]
    entry = {
        "mediaType": OCI_MANIFEST,
        "digest": image.digest,
        "size": len(image.manifest),
        "annotations": {"org.opencontainers.image.ref.name": name},
        "platform": {"architecture": architecture, "os": os_name},
    }
    others = []
    path = folder / "index.json"
    if path.exists():
        try:
            others = [
                item
                for item in json.loads(path.read_bytes())["manifests"]
                if item.get("annotations", {}).get("org.opencontainers.image.ref.name") != name
            ]
        except (ValueError, KeyError, AttributeError, TypeError):
            raise UsageError("index.json is damaged", where=str(folder), next="name a new folder") from None
    return json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [*others, entry]}, indent=1).encode()


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except FileExistsError:
        return
    except OSError:
        with source.open("rb") as file:
            _write(target, iter(lambda: file.read(1 << 20), b""))


def _write(target: Path, chunks: Iterator[bytes]) -> None:
    descriptor, name = tempfile.mkstemp(prefix=".partial-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
        Path(name).chmod(0o644)
        shutil.move(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
