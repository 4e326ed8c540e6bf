"""Garbage collection: reads the contents of the store, and removes what `retention.py` decides, beside live builds."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from builder.digest import Digest
from builder.jsontext import parse_json
from builder.regular import read_regular
from builder.store.records import read_record
from builder.store.removal import files_below, remove
from builder.store.retention import Contents, GcReport, Item, Policy, Record, decide, digests, rows
from builder.store.store import SMALL, Store


def collect(store: Store, policy: Policy, *, dry_run: bool) -> GcReport:
    """Remove what the policy does not keep and no living process claims. Raises EngineError.

    No process can add a claim during the decision. What is removed is first moved below tmp/, which takes no time.
    """
    with store.claims.exclusive() as claims:
        report = decide(read_contents(store), policy, claims, time.time())
        if dry_run:
            return report
        scratch = store.scratch()
        try:
            # Records come first in the list: a record must not name a removed blob.
            for number, path in enumerate(report.paths):
                (store.root / path).replace(scratch / str(number))
            if claims is None:
                _remove_locks(store)
                # Unknown names: other builders' files start with the name of their lock file.
                for stray in _entries(store.tmp):
                    if not stray.name.startswith(f"{store.owner}-"):
                        stray.replace(scratch / f"tmp-{stray.name}")
        except OSError:
            remove(scratch)
            raise
    remove(scratch)
    return report


def read_contents(store: Store) -> Contents:
    """What the store holds: records, receipts, and the times and sizes of files. Raises OSError."""
    return Contents(
        images=tuple(_record(store, path) for path in _entries(store.root / "images")),
        layers=tuple(_record(store, path) for path in _entries(store.root / "layers")),
        blobs=tuple(_item(store, path) for path in _entries(store.root / "blobs" / "sha256")),
        unpacked=tuple(_item(store, path) for path in _entries(store.unpacked)),
    )


def _record(store: Store, path: Path) -> Record:
    data = read_record(path) or {}
    item = replace(_item(store, path), used=path.lstat().st_mtime)
    found = _receipt(store, data.get("receipt"))
    names = {str(row.get("digest")): str(row.get("name")) for row in rows(found.get("used"))}
    return Record(item, data, digests(found.get("used")), str(found.get("layer", "")), names)


def _item(store: Store, path: Path) -> Item:
    """A file, or a folder with all that is in it."""
    status = path.lstat()
    name = str(path.relative_to(store.root))
    # Creating a blob, or a hard link to it, sets the time of its status.
    if not stat.S_ISDIR(status.st_mode):
        return Item(name, status.st_ctime, *_sizes(status))
    # Hard links within an unpacked image count once.
    seen: dict[tuple[int, int], int] = {}
    for found in files_below(path):
        seen[found.st_dev, found.st_ino] = found.st_blocks * 512
    return Item(name, status.st_ctime, sum(seen.values()))


def _receipt(store: Store, receipt: object) -> dict[str, Any]:
    """A layer's receipt; empty when there is none, or when it is damaged."""
    if not isinstance(receipt, str):
        return {}
    try:
        found = parse_json(read_regular(store.blob(Digest(receipt)), SMALL))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _sizes(status: os.stat_result) -> tuple[int, int]:
    """The bytes that a file's removal frees, and the bytes that stay because the file has other names."""
    size = status.st_blocks * 512
    return (size, 0) if status.st_nlink == 1 else (0, size)


def _remove_locks(store: Store) -> None:
    """Remove the locks of layers; without another process nobody holds one."""
    for path in (store.root / "locks").iterdir():
        if len(path.name) == 64:
            remove(path)


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
