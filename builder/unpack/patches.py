"""Files of a source archive over an installed distribution, whose RECORD lists what is then installed."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .bounds import Budget, Unpacked
from .entry import Entry, UnpackError, clean_path, damaged, from_bytes
from .tar import Archive
from .wheels import Scheme, install, record_hash

_LARGEST = 8 << 20
"""Bytes of one Python file, and of a RECORD."""


def overlay(wheel: Path, source: Path, item: Mapping[str, Any], scheme: Scheme, budget: Budget) -> list[Entry]:
    """The files that take the place of the wheel's, or stand beside them, and the distribution's new RECORD.

    item: an entry of `patches` in a layer's description. source: a .tar.gz with one top folder. Raises UnpackError,
    also when the archive lacks a file, or a file would lie in no package of the wheel.
    """
    label = item["wheel"]["file"]
    before = {entry.path: entry for entry in install(wheel, label, scheme, budget)}
    record = next(path for path in before if path.endswith(".dist-info/RECORD"))
    files = _read(source, item["source"]["file"], item["folder"], item["files"], budget)
    made = []
    for name, data in files.items():
        path = f"{scheme.site}/{name}"
        package = f"{scheme.site}/{name.partition('/')[0]}/__init__.py"
        if not name.endswith(".py") or (path not in before and package not in before):
            raise UnpackError(f"{name} is not a Python file of a package of {label}", id="patch-outside-package")
        made.append(from_bytes(path, data, before[path].mode if path in before else 0o644, item["source"]["file"]))
    with damaged(label):
        old = _content(before[record], budget)
        rows = [row for row in csv.reader(io.StringIO(old.decode("utf-8"))) if row[0] not in files]
    rows += [[name, record_hash((data,)), str(len(data))] for name, data in files.items()]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(sorted(rows))
    return [*made, from_bytes(record, text.getvalue().encode(), owner=label)]


def _content(entry: Entry, budget: Budget) -> bytes:
    assert entry.read is not None
    budget.take(entry.owner, "bytes in memory", entry.size)
    return b"".join(entry.read())


def _read(source: Path, label: str, folder: str, names: list[str], budget: Budget) -> dict[str, bytes]:
    """The files by the paths at which they are installed."""
    places = {clean_path(f"{folder}/{name}", label): name for name in names}
    found: dict[str, bytes] = {}
    with damaged(label), source.open("rb", buffering=0) as file:
        stream = Unpacked(file, "gz", label, budget)
        for member in Archive(stream, label, may_comment=True):
            budget.take(label, "files", 1)
            name = places.get(member.name.strip("/").partition("/")[2])
            if name is None:
                continue
            if not member.isreg() or name in found or member.size > _LARGEST:
                raise UnpackError(f"{label}: {member.name} is not one Python file", id="patch-file-unusable")
            budget.take(label, "bytes in memory", member.size)
            found[name] = stream.read(member.size)
    if missing := [name for name in names if name not in found]:
        raise UnpackError(f"{label} has no file {missing[0]}", id="patch-file-missing")
    return {name: found[name] for name in sorted(found)}
