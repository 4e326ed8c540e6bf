"""The folders that hold recipes, layers and locks: those of a project of one's own, and builder's.

Files are found by their names and not read: this module loads no model, because shells ask it for names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from builder.errors import InvalidError, UsageError
from builder.model.textfile import not_regular, unreadable
from builder.text import closest

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
FILE = "builder.toml"
"""The file of a project's choices."""

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


class Folders:
    """The files of a search path, by the names of what they define. The first folder that has a name wins."""

    def __init__(self, roots: tuple[Path, ...] | None = None) -> None:
        self.roots = roots if roots is not None else search_path()
        self._cache: dict[tuple[str, Hashable], Any] = {}

    def recipe_names(self) -> list[str]:
        """All recipes, sorted."""
        return list(self.once("names", "recipes", lambda folder: self._names(folder, "*.yaml")))

    def base_names(self) -> list[str]:
        """All bases, sorted."""
        return list(self.once("names", "recipes/bases", lambda folder: self._names(folder, "*.yaml")))

    def layer_names(self) -> list[str]:
        """All layers, sorted."""
        return list(self.once("names", "layers", self._layers))

    def _layers(self, folder: str) -> list[str]:
        paths = (path for root in self.roots for path in root.glob(f"dockerfiles/{folder}/*/layer.yaml"))
        return sorted({path.parent.name for path in paths})

    def section_names(self) -> list[str]:
        """All lock sections, sorted."""
        return self._names("recipes/locks", "*.json")

    def recipe_path(self, name: str) -> Path:
        """The file of a recipe."""
        return self._find(f"recipes/{name}.yaml")

    def base_path(self, name: str) -> Path:
        """The file of a base."""
        return self._find(f"recipes/bases/{name}.yaml")

    def once(self, kind: str, name: K, read: Callable[[K], T]) -> T:
        """What `read` makes of a name, which is read once. kind: other kinds have other names."""
        if (kind, name) not in self._cache:
            self._cache[kind, name] = read(name)
        value: T = self._cache[kind, name]
        return value

    def _definition(self, kind: str, relative: str, name: str, names: Callable[[], Iterable[str]]) -> Path:
        """The file of a recipe, base or layer. Raises UsageError when there is none of this name."""
        path = self._search(relative, name)
        if path is None:
            raise UsageError(
                f"there is no {kind} {name[:100]!r}",
                id="name-unknown",
                cause=closest(name, names()),
                next=f"builder list {kind}s",
            )
        return path

    def _find(self, relative: str) -> Path:
        """A file that must exist. Raises InvalidError."""
        path = self._lookup(relative)
        if path is None:
            raise InvalidError(f"{relative} is missing", id="project-file-missing", where=str(self.roots[0]))
        return path

    def _search(self, relative: str, name: str) -> Path | None:
        """The file that a name refers to, if any. An invalid name is not looked up on disk."""
        return self._lookup(relative) if _is_name(name) else None

    def _lookup(self, relative: str) -> Path | None:
        for root in self.roots:
            path = root / relative
            try:
                if path.is_file():
                    return path
                exists = os.path.lexists(path)
            except OSError as error:
                raise unreadable(path, error) from None
            if exists:
                raise not_regular(path, "a folder, a pipe, or a broken link")
        return None

    def _names(self, folder: str, pattern: str) -> list[str]:
        found = [path for root in self.roots for path in (root / folder).glob(pattern)]
        # Editors keep files of their own beside the edited one, with a dot before the name.
        paths = {path.stem: path for path in found if not path.name.startswith(".")}
        for name, path in paths.items():
            if not _is_name(name):
                raise InvalidError(
                    f"{name!a} is not a valid name",
                    id="file-name-invalid",
                    where=str(path),
                    cause="a name has lower-case letters, digits, dots, hyphens and underscores",
                )
        return sorted(paths.keys() - {"requests"})


def _is_name(name: str) -> bool:
    """Whether a recipe, base, layer or lock section can have this name."""
    return re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", name) is not None
