"""The folders that hold recipes, layers and locks: those of a project of one's own, and builder's."""

from __future__ import annotations

import os
from pathlib import Path

from builder.choices import FILE
from builder.errors import UsageError

_BUNDLED = Path(__file__).resolve().parent / "data"
"""The recipes and layers of an installed package."""


def is_bundled(root: Path) -> bool:
    """Whether a folder of the search path belongs to the installed package."""
    return root == _BUNDLED


def shipped_root() -> Path:
    """The folder of builder's own recipes and layers: of the installed package, or the checkout."""
    return _BUNDLED if (_BUNDLED / "recipes").is_dir() else _BUNDLED.parents[1]


def own_root() -> Path:
    """The folder that a new file is written to: BUILDER_PROJECT, else the current one. Raises UsageError."""
    chosen = os.environ.get("BUILDER_PROJECT")
    return search_path()[0] if chosen else Path.cwd()


def search_path() -> tuple[Path, ...]:
    """The folders that hold recipes/ and dockerfiles/, in the order of the search. Raises UsageError."""
    shipped = shipped_root()
    chosen = os.environ.get("BUILDER_PROJECT")
    if chosen:
        own = Path(chosen)
        if not own.is_dir():
            raise UsageError(f"BUILDER_PROJECT is not a folder: {own}", id="project-not-a-folder")
        return (own.resolve(), shipped)
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise UsageError(
            "the current folder does not exist any more", id="current-folder-missing", next="cd to a folder that exists"
        ) from None
    is_project = (here / "recipes").is_dir() or (here / "dockerfiles" / "layers").is_dir() or (here / FILE).is_file()
    if is_project and here != shipped:
        return (here, shipped)
    return (shipped,)
