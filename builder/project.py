"""Where recipes, bases, layers and locks are found, and the values read from there.

Folders are searched in order: BUILDER_PROJECT, or the current folder when it has `recipes/` or `dockerfiles/`; then
what the package brings. The first that has a name decides: a folder of one's own needs to hold only what is new.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.errors import InvalidError, PinError, UsageError
from builder.text import is_plain_line

if TYPE_CHECKING:
    from builder.model.base import Base
    from builder.model.layer import Layer
    from builder.model.lock import LockSection
    from builder.model.recipe import Profile, Recipe


@dataclass(frozen=True)
class LayerSource:
    """A layer's definition and the other files of its folder, by relative path."""

    definition: Layer
    files: dict[str, bytes]
    folder: Path


_BUNDLED = Path(__file__).resolve().parent / "data"
"""Where an installed package has them."""


def is_bundled(root: Path) -> bool:
    """Whether a folder of the search path belongs to the installed package."""
    return root == _BUNDLED


def search_path() -> tuple[Path, ...]:
    """The folders that hold recipes/ and dockerfiles/, first one first."""
    shipped = _BUNDLED if (_BUNDLED / "recipes").is_dir() else _BUNDLED.parents[1]
    chosen = os.environ.get("BUILDER_PROJECT")
    if chosen:
        own = Path(chosen)
        if not own.is_dir():
            raise UsageError(f"BUILDER_PROJECT is not a folder: {own}")
        return (own.resolve(), shipped)
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current folder is not there any more", next="cd into one that is") from None
    if here != shipped and ((here / "recipes").is_dir() or (here / "dockerfiles" / "layers").is_dir()):
        return (here, shipped)
    return (shipped,)


class Project:
    """Reads recipes, bases, layers and lock sections, each once and only when asked for."""

    def __init__(self, roots: tuple[Path, ...] | None = None) -> None:
        self.roots = roots if roots is not None else search_path()
        self._cache: dict[tuple[str, str], object] = {}

    def recipe_names(self) -> list[str]:
        """All recipes, sorted."""
        return self._names("recipes", "*.yaml")

    def base_names(self) -> list[str]:
        """All bases, sorted."""
        return self._names("recipes/bases", "*.yaml")

    def layer_names(self) -> list[str]:
        """All layers, sorted."""
        return sorted(
            {path.parent.name for root in self.roots for path in root.glob("dockerfiles/layers/*/layer.yaml")}
        )

    def section_names(self) -> list[str]:
        """All lock sections, sorted."""
        return self._names("recipes/locks", "*.json")

    def recipe(self, name: str) -> Recipe:
        """A recipe by name. Raises UsageError when there is none, InvalidError when it is not valid."""
        from builder.model.recipe import Recipe

        if (known := self._cache.get(("recipe", name))) is None:
            known = self._cache["recipe", name] = self._recipe(name)
        assert isinstance(known, Recipe)
        return known

    def _recipe(self, name: str) -> Recipe:
        from builder.model.recipe import Recipe
        from builder.model.variant import extended
        from builder.model.yamlfile import build

        data = extended(name, lambda other: self._data("recipe", f"recipes/{other}.yaml", other, self.recipe_names))
        path = self._find(f"recipes/{name}.yaml")
        made = build(data, Recipe, where=str(path), text=path.read_text("utf-8"))
        if made.name != name:
            raise InvalidError(f"name is {made.name!r}, but the file says {name!r}", where=str(path))
        return made

    @cached_property
    def shared_profiles(self) -> dict[str, Profile]:
        """The profiles that any recipe can switch on."""
        from builder.model.recipe import Profile
        from builder.model.yamlfile import load

        names = self._names("recipes/profiles", "*.yaml")
        return {name: load(self._find(f"recipes/profiles/{name}.yaml"), Profile) for name in names}

    def recipe_path(self, name: str) -> Path:
        """The file of a recipe."""
        return self._find(f"recipes/{name}.yaml")

    def base(self, name: str) -> Base:
        """A base by name."""
        from builder.model.base import Base

        found = self._yaml("base", f"recipes/bases/{name}.yaml", name, Base, self.base_names)
        assert isinstance(found, Base)
        return found

    def base_path(self, name: str) -> Path:
        """The file of a base."""
        return self._find(f"recipes/bases/{name}.yaml")

    @cached_property
    def bases(self) -> dict[str, Base]:
        """All bases by name."""
        return {name: self.base(name) for name in self.base_names()}

    def bases_called(self, name: str) -> list[Base]:
        """The base of this name or alias, else all of this family; empty when there is none."""
        if name in self.base_names():
            return [self.base(name)]
        bases = self.bases.values()
        return [base for base in bases if name in base.aliases] or [base for base in bases if name == base.family]

    def layer(self, name: str) -> LayerSource:
        """A layer by name, with the files of its folder."""
        from builder.model.layer import Layer

        if (known := self._cache.get(("layer", name))) is None:
            definition = self._yaml("layer", f"dockerfiles/layers/{name}/layer.yaml", name, Layer, self.layer_names)
            assert isinstance(definition, Layer)
            folder = self._find(f"dockerfiles/layers/{name}/layer.yaml").parent
            known = self._cache["layer", name] = LayerSource(definition, _files(folder), folder)
        assert isinstance(known, LayerSource)
        return known

    def has_section(self, name: str) -> bool:
        """Whether the lock has this section."""
        return _plain(name) and self._find(f"recipes/locks/{name}.json", missing_ok=True) is not None

    def section(self, name: str) -> LockSection:
        """A lock section. Raises PinError when it is missing, InvalidError when it is not valid."""
        from builder.model.lockfile import load_section

        if (known := self._cache.get(("section", name))) is None:
            path = self._find(f"recipes/locks/{name}.json", missing_ok=True) if _plain(name) else None
            if path is None:
                raise PinError(
                    f"the lock has no section {name!r}",
                    where="recipes/locks",
                    cause=closest(name, self.section_names()),
                    next=f"builder lock --update {name}",
                )
            known = self._cache["section", name] = load_section(path)
        return known  # type: ignore[return-value]

    def template(self, name: str) -> str:
        """The text of a shared Dockerfile template."""
        from builder.model.yamlfile import read_text

        return read_text(self._find(f"dockerfiles/{name}"))

    def _find(self, relative: str, missing_ok: bool = False) -> Path:
        for root in self.roots:
            path = root / relative
            try:
                if path.is_file():
                    return path
                there = os.path.lexists(path)
            except OSError as error:
                raise InvalidError(f"cannot read: {error.strerror}", where=str(path)) from None
            if there:
                raise InvalidError("is not a file", where=str(path), cause="a folder, a pipe, or a link to nowhere")
        if missing_ok:
            return None  # type: ignore[return-value]
        raise InvalidError(f"{relative} is missing", where=str(self.roots[0]))

    def _names(self, folder: str, pattern: str) -> list[str]:
        found = [path for root in self.roots for path in (root / folder).glob(pattern)]
        # Editors keep files of their own beside what they edit, with a dot before the name.
        paths = {path.stem: path for path in found if not path.name.startswith(".")}
        for name, path in paths.items():
            if not _plain(name):
                raise InvalidError(
                    f"{name!a} is not usable as a name",
                    where=str(path),
                    cause="small letters, digits, dots, dashes, underscores",
                )
        return sorted(paths.keys() - {"requests"})

    def _data(self, kind: str, relative: str, name: str, names: Callable[[], Iterable[str]]) -> dict[str, Any]:
        """A YAML file's own mapping, not yet checked against a model."""
        from builder.model.yamlfile import parse_yaml, read_text

        path = self._find(relative, missing_ok=True) if _plain(name) else None
        if path is None:
            raise UsageError(f"there is no {kind} {name!r}", cause=closest(name, names()), next=f"builder list {kind}s")
        data = parse_yaml(read_text(path), str(path))
        if not isinstance(data, dict):
            raise InvalidError(f"not a {kind}", where=str(path))
        return data

    def _yaml(self, kind: str, relative: str, name: str, model: type, names: object) -> object:
        from builder.model.yamlfile import load

        if (known := self._cache.get((kind, relative))) is None:
            path = self._find(relative, missing_ok=True) if _plain(name) else None
            if path is None:
                listed: Iterable[str] = names()  # type: ignore[operator]
                raise UsageError(
                    f"there is no {kind} {name!r}", cause=closest(name, listed), next=f"builder list {kind}s"
                )
            known = load(path, model)
            if getattr(known, "name", name) != name:
                raise InvalidError(
                    f"name is {getattr(known, 'name', '')!r}, but the file says {name!r}", where=str(path)
                )
            self._cache[kind, relative] = known
        return known


def _files(folder: Path) -> dict[str, bytes]:
    """The files of a layer's folder but layer.yaml, by relative path. Raises InvalidError.

    They go into build contexts: a link could bring a file of this machine there.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name == "layer.yaml" or path.name.startswith(".#") or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink() or not path.is_file():
            raise InvalidError("is not a file", where=str(path), cause="a layer's folder holds files, and no links")
        if not is_plain_line(name):
            raise InvalidError(f"{name!a} is not usable as a file's name", where=str(folder))
        try:
            found[name] = path.read_bytes()
        except OSError as error:
            raise InvalidError(f"cannot read: {error.strerror}", where=str(path)) from error
    return found


def _plain(name: str) -> bool:
    """Whether something can have this name at all; what cannot is not looked for on disk."""
    return re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", name) is not None


def closest(name: str, names: Iterable[str]) -> str:
    """The likely cause of an unknown name: that one of `names` was meant; empty when none is like it."""
    close = difflib.get_close_matches(name, list(names), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else ""
