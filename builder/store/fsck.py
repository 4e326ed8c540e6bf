"""Checks the whole store: every blob against its name, and every record against the blobs that it names."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from builder.attest.receipt import is_receipt_of
from builder.digest import Digest, is_digest
from builder.errors import InvalidError
from builder.parallel import every
from builder.regular import NotRegularError, is_regular, read_regular
from builder.store.blobs import disk_error, hash_of
from builder.store.records import checked_key, parse_layer, read_record
from builder.store.removal import remove
from builder.store.store import SMALL, Store

_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, order=True)
class Fault:
    """A damaged file of the store. path: below its root."""

    path: str
    problem: str


@dataclass
class Checked:
    """What was checked. size: of all blobs, in bytes. faults: what is damaged; with a repair, it was removed."""

    blobs: int = 0
    size: int = 0
    layers: int = 0
    images: int = 0
    faults: list[Fault] = field(default_factory=list)


def check(store: Store, *, repair: bool) -> Checked:
    """Read the whole store. repair: remove what is damaged; the next build makes or fetches it again.

    Other processes may use the store meanwhile. Raises EngineError when a file cannot be read or removed.
    """
    found = Checked()
    try:
        paths = sorted((store.root / "blobs" / "sha256").iterdir())
        results = every(_blob, paths, os.cpu_count() or 1)
        for path, (size, problem) in zip(paths, results, strict=True):
            found.blobs += size is not None
            found.size += size or 0
            _note(store, found, path, problem, repair=repair)
        # After the blobs: a record of a blob that was removed is damaged, too.
        for path in sorted((store.root / "layers").iterdir()):
            found.layers += 1
            _note(store, found, path, _layer_problem(store, path), repair=repair)
        for path in sorted((store.root / "images").iterdir()):
            found.images += 1
            _note(store, found, path, _image_problem(store, path), repair=repair)
    except OSError as error:
        raise disk_error(error, store.root) from error
    return found


def _note(store: Store, found: Checked, path: Path, problem: str, *, repair: bool) -> None:
    if problem:
        found.faults.append(Fault(str(path.relative_to(store.root)), problem))
        if repair:
            remove(path)


def _blob(path: Path) -> tuple[int | None, str]:
    """The size of a blob and its problem. A blob that `gc` removes meanwhile has neither."""
    if not _HEX.fullmatch(path.name):
        return None, "not the name of a blob"
    try:
        size = path.lstat().st_size
        actual = hash_of(path)
    except FileNotFoundError:
        return None, ""
    except NotRegularError:
        return None, "a link, a pipe or a folder"
    return size, "" if actual.hex == path.name else f"its bytes hash to {actual}"


def _layer_problem(store: Store, path: Path) -> str:
    key = path.name.removesuffix(".json")
    try:
        record = parse_layer(checked_key(key), read_record(path))
    except InvalidError:
        record = None
    if not path.exists():
        return ""  # removed meanwhile
    if record is None or record.receipt is None:
        return "damaged or incomplete"
    for digest in (record.digest, record.listing, record.receipt):
        if not is_regular(store.blob(digest)):
            return f"the blob {digest} is missing"
    if store.blob(record.digest).lstat().st_size != record.size:
        return f"the blob {record.digest} has another size"
    try:
        receipt = read_regular(store.blob(record.receipt), SMALL)
    except OSError as error:
        return f"its receipt cannot be read: {error.strerror}"
    return "" if is_receipt_of(receipt, key, record.digest) else "its receipt is of another layer"


def _image_problem(store: Store, path: Path) -> str:
    data = read_record(path)
    if data is None:
        return "damaged" if path.exists() else ""
    for name in ("digest", "config"):
        value = data.get(name)
        if not is_digest(value) or not is_regular(store.blob(Digest(str(value)))):
            return f"its {'manifest' if name == 'digest' else 'configuration'} is missing"
    return ""
