"""Unpacking an image into a folder, from which a sandbox runs it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from builder.errors import EngineError
from builder.parallel import every
from builder.smoke.image.layerstream import LayerStream, member_path, stopping
from builder.smoke.image.opened import OpenedImage
from builder.smoke.image.tree import ImageTree
from builder.store.blobs import disk_error
from builder.store.removal import remove

_NOBODY = 65534
_MODE = 0o1777
"""Bits of a mode that are kept: all but setuid and setgid."""


def unpacked_root(image: OpenedImage, folder: Path) -> Path:
    """The root folder that `unpack` makes for an image."""
    return folder / image.digest.tag


def unpack(image: OpenedImage, folder: Path, *, first_id: int | None = None, ids: int = 0) -> Path:
    """Unpack an image below `folder`, once per digest; returns its root.

    `folder` gets mode 0700, and no file is setuid or setgid: on the host nobody runs programs of the image. Device
    files are left out. first_id: the id of the host for user and group 0; ids from `ids` on become 65534 (nobody).
    None: every file belongs to the caller. Raises EngineError when layers are missing, or when
    the image does not fit on the disk (checked before anything is written).
    """
    root = unpacked_root(image, folder)
    if root.is_dir():
        return root
    missing = [blob.digest for blob in image.layers if not blob.present]
    if missing:
        raise EngineError(
            f"{len(missing)} layers of the image are not on this machine", id="image-layers-missing", where=str(folder)
        )
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    half = Path(tempfile.mkdtemp(prefix="unpack-", dir=folder))
    try:
        with tempfile.TemporaryDirectory() as none:
            tree = ImageTree.of_image(image, Path(none))
        need, free = _size(tree), free_bytes(folder)
        if need > free:
            raise EngineError(
                f"the image needs {need / 1e9:.3g} GB unpacked; {free / 1e9:.3g} GB are free",
                id="disk-space-short",
                where=str(folder),
                next="free some space (builder gc), or point BUILDER_STORE at a larger disk",
            )
        _fill(tree, half / "root", Owners(first_id, ids))
        with contextlib.suppress(FileExistsError, OSError):
            # Another process may have unpacked the same image first.
            (half / "root").rename(root)
    except OSError as error:
        raise disk_error(error, folder) from error
    finally:
        remove_tree(half)
    return root


def _size(tree: ImageTree) -> int:
    """Bytes that the tree takes on disk: hard links once, files and folders in blocks of 4 KiB."""
    files = {(entry.layer, entry.source): entry.size for entry in tree.entries.values() if entry.kind == "file"}
    return sum(-(-size // 4096) * 4096 for size in files.values()) + 4096 * (len(tree.entries) - len(files))


@dataclass(frozen=True)
class Owners:
    """Changes owners of files to those of a range of ids. first: for id 0; None changes nothing."""

    first: int | None
    ids: int

    def set(self, path: Path, user: int, group: int) -> None:
        """Give a file, folder or symlink its owner."""
        if self.first is not None:
            user, group = (self.first + (each if each < self.ids else _NOBODY) for each in (user, group))
            os.chown(path, user, group, follow_symlinks=False)


def _fill(tree: ImageTree, root: Path, owners: Owners) -> None:
    root.mkdir()
    owners.set(root, 0, 0)
    # Folders first, symlinks last, so that no file is written through a symlink that leaves the root.
    folders = [(path, entry) for path, entry in sorted(tree.entries.items()) if entry.kind == "dir"]
    for path, _ in folders:
        (root / path).mkdir(mode=0o700)
    numbers = range(len(tree.image.layers))
    every(lambda number: _files(tree, number, root, owners), numbers, max(2, os.cpu_count() or 2), stopping)
    for path, entry in tree.entries.items():
        if entry.kind == "symlink":
            (root / path).symlink_to(entry.link)
            owners.set(root / path, entry.uid, entry.gid)
    for path, entry in reversed(folders):
        owners.set(root / path, entry.uid, entry.gid)
        (root / path).chmod(entry.mode & _MODE)
    root.chmod(0o755)


def _files(tree: ImageTree, number: int, root: Path, owners: Owners) -> None:
    wanted: dict[str, list[str]] = defaultdict(list)
    for path, entry in tree.entries.items():
        if entry.layer == number and entry.kind == "file":
            wanted[entry.source].append(path)
    with LayerStream(tree.image.layers[number].open(), tree.image.layers[number].digest) as stream:
        for member in stream:
            paths = wanted.get(member_path(member.name))
            if not paths or not member.isreg():
                continue
            first = root / paths[0]
            with first.open("xb") as file:
                stream.copy(member, file.write)
            entry = tree.entries[paths[0]]
            owners.set(first, entry.uid, entry.gid)
            first.chmod(entry.mode & _MODE)
            for other in paths[1:]:
                os.link(first, root / other)


def remove_tree(folder: Path) -> None:
    """Remove a folder that a container wrote to; a process of it may still be writing."""
    for pause in (0.0, 0.1, 0.5):
        time.sleep(pause)
        remove(folder)
        if not folder.exists():
            return


def free_bytes(folder: Path) -> int:
    """Free bytes on the disk of a folder, which may not exist yet."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
