"""Files that a layer places itself, and where layers may place files. A plan needs no more of this room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .entry import Entry, UnpackError, clean_path, directory, from_bytes, symlink

ALLOWED = ("etc", "opt", "srv", "usr")
"""Where a layer that is not a root may place files: plain folders of root with mode 0755 on every base."""

PLACED = "the layer's files"
"""The owner of the layer's own files, which win over files of packages and wheels."""


def placed(item: Mapping[str, Any]) -> Entry:
    """One entry of the description's `files`."""
    path = clean_path(item["path"], PLACED)
    if item.get("link") is not None:
        return symlink(path, item["link"], PLACED)
    if item.get("directory"):
        return directory(path, int(item.get("mode") or "0755", 8), PLACED)
    return from_bytes(path, item["content"].encode(), int(item.get("mode") or "0644", 8), PLACED)


def check_place(entry: Entry, also: tuple[str, ...] = ()) -> None:
    """Raises UnpackError for a path or a mode that only a root layer may have. also: more folders that may get files"""
    first = entry.path.partition("/")[0]
    inside = first in ALLOWED or entry.path.startswith(tuple(f"{folder}/" for folder in also))
    above = entry.path in ALLOWED or any(f"{folder}/".startswith(f"{entry.path}/") for folder in also)
    if not (inside or above) or (above and entry.kind != "dir"):
        raise UnpackError(
            f"a layer may not place /{entry.path}: only files below {', '.join('/' + name for name in ALLOWED)} keep "
            "their meaning on every base",
            id="layer-path-forbidden",
        )
    if entry.kind in ("file", "dir") and entry.mode & 0o6000:
        raise UnpackError(
            f"/{entry.path} is set-user-id or set-group-id, which only a root layer may have",
            id="layer-mode-forbidden",
        )
