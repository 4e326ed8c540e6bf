"""OCI image layouts: folders that hold images, as skopeo, podman and crane read them; written to under a lock."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from builder.atomic import write_file
from builder.digest import Digest
from builder.errors import EngineError, PinError, UsageError
from builder.jsontext import read_json
from builder.oci.assemble import Image, ImageLayer
from builder.oci.manifest import OCI_INDEX, OCI_MANIFEST
from builder.regular import is_regular
from builder.store.blobs import Blobs, disk_error, hash_of
from builder.store.claims import try_lock
from builder.store.removal import remove
from builder.store.store import Store

_NAME = "org.opencontainers.image.ref.name"
_PARTIAL = ".partial-"
PATIENCE = 60.0
"""Seconds to wait for a process that changes the index of a layout."""
_MARKER = b'{"imageLayoutVersion":"1.0.0"}'
"""The content of the file oci-layout."""

BlobSource = Callable[[ImageLayer], Iterator[bytes]]
"""Returns the bytes of a layer of the base, verified."""


def write_layout(image: Image, store: Store, folder: Path, *, name: str, base_blob: BlobSource | None = None) -> None:
    """Write the image into the layout at `folder`, which is created if needed, under the reference name `name`.

    Blobs are hard-linked from the store, or copied where a link is not possible; a blob of the layout with wrong bytes
    is replaced. The index is replaced last and atomically: a reader sees the old image or the new one, and several
    builds may write at once. Raises UsageError for a folder that holds something else, and EngineError.
    """
    prepare(folder)
    try:
        with _partial(folder) as tmp:
            blobs = _LayoutBlobs(folder, tmp)
            for layer in image.layers:
                if blobs.is_intact(layer.digest):
                    continue
                if layer.of_base:
                    assert base_blob is not None
                    blobs.fill(layer.digest, partial(base_blob, layer))
                else:
                    _add(blobs, store, layer.digest)
            for digest, data in ((image.config_digest, image.config), (image.digest, image.manifest)):
                blobs.fill(digest, partial(iter, (data,)))
        os_name, architecture = (json.loads(image.config)[key] for key in ("os", "architecture"))
        platform = {"architecture": architecture, "os": os_name}
        with locked(folder):
            list_entry(folder, image.digest, len(image.manifest), name, platform=platform)
    except OSError as error:
        raise disk_error(error, folder, _LayoutBlobs.place) from error


def prepare(folder: Path, option: str = "--output oci:DIR") -> None:
    """Create the folder of a layout. Raises UsageError for a folder that holds something else.

    A new folder gets the file oci-layout first, so that an interrupted run leaves what the next run accepts.
    option: the option or command that names the folder, for error messages.
    """
    check_folder(folder, option)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # "x" creates a new file only. No reader takes the folder for an image: it has no index yet.
        marker = folder / "oci-layout"
        if not marker.exists():
            with contextlib.suppress(FileExistsError), marker.open("xb") as file:
                file.write(_MARKER)
        elif is_regular(marker) and not marker.stat().st_size:
            write_file(marker, _MARKER)  # of a run that was killed between the two steps above
    except OSError as error:
        raise disk_error(error, folder, option.rpartition(" ")[2]) from error


def check_folder(folder: Path, option: str = "--output oci:DIR") -> None:
    """Raises UsageError for a folder that cannot become a layout. option: as in `prepare`."""
    if folder.exists() and not folder.is_dir():
        raise UsageError("is a file, not a folder", id="layout-is-file", where=str(folder), next="name a new folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "oci-layout").exists():
        raise UsageError(
            "is not empty and not an OCI layout",
            id="layout-folder-occupied",
            where=str(folder),
            next=f"name a new folder: {option}",
        )


@contextlib.contextmanager
def locked(folder: Path, patience: float | None = None) -> Iterator[None]:
    """Hold the lock of a layout, which a change of its index needs. Without effect on a file system without locks.

    patience: seconds to wait for another process; default: PATIENCE. Raises EngineError after them, and OSError.
    """
    deadline = time.monotonic() + (PATIENCE if patience is None else patience)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while not _try_lock(handle):
            if time.monotonic() >= deadline:
                raise EngineError(
                    "another process writes to this layout",
                    id="layout-locked",
                    where=str(folder),
                    next="run the command again when the other one has ended",
                )
            time.sleep(0.05)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        return try_lock(handle)
    except OSError:
        return True  # a file system without locks


class _LayoutBlobs(Blobs):
    """The blobs of a layout."""

    place = "oci:DIR"

    def is_intact(self, digest: Digest) -> bool:
        """Whether the blob is there with the right bytes."""
        return self.has(digest) and hash_of(self.blob(digest)) == digest


def _add(blobs: Blobs, store: Store, digest: Digest) -> None:
    """A blob of the store. Raises PinError when it is absent or damaged there."""
    try:
        blobs.add_file(store.blob(digest), digest)
    except (PinError, OSError):
        store.verify(digest)
        raise


@contextlib.contextmanager
def _partial(folder: Path) -> Iterator[Path]:
    """A new folder for unfinished blobs, locked as long as it is used; removes those of processes that ended."""
    with contextlib.ExitStack() as stack:
        with locked(folder):
            (folder / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
            for path in folder.glob(f"{_PARTIAL}*"):
                with contextlib.suppress(EngineError, OSError), locked(path, patience=0):
                    remove(path)
            tmp = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=folder))
            stack.enter_context(locked(tmp))
            stack.callback(remove, tmp)
        yield tmp


def list_entry(folder: Path, digest: Digest, size: int, name: str, **more: Any) -> None:
    """Add a manifest of the layout to the index under `name`; it replaces a manifest of the same name.

    The index is replaced atomically; a caller whose folder others can write to holds its lock. more: further keys of
    the descriptor. Raises UsageError for a damaged index.
    """
    annotations = {_NAME: name}
    entry = {"mediaType": OCI_MANIFEST, "digest": digest, "size": size, **more, "annotations": annotations}
    others = [item for item in read_index(folder) if item.get("annotations", {}).get(_NAME) != name]
    listed = sorted([*others, entry], key=lambda item: str(item.get("annotations", {}).get(_NAME, "")))
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": listed}
    for path, data in (("oci-layout", _MARKER), ("index.json", json.dumps(index, indent=1).encode())):
        write_file(folder / path, data)


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
