"""Reads recipes, bases, layers and lock sections by name from the folders of the search path.

The folders, in order: BUILDER_PROJECT, or the current folder when it has `recipes/`, `dockerfiles/` or `builder.toml`;
then the files of the installed package. The first folder that has a name wins, so a user's folder holds only new or
changed files.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from builder.choices import FILE, Choices, load_choices
from builder.derive import stacked
from builder.errors import InvalidError, PinError, UsageError
from builder.folders import search_path
from builder.model.base import Base
from builder.model.layer import Layer
from builder.model.lock import LockSection
from builder.model.lockfile import load_section
from builder.model.recipe import Profile, Recipe
from builder.model.textfile import check_name, not_regular, place_of, read_folder, read_text, unreadable
from builder.model.variant import extended
from builder.model.yamlfile import build, load, parse_yaml

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class LayerSource:
    """A layer's definition and the other files of its folder, by relative path."""

    definition: Layer
    files: dict[str, bytes]
    folder: Path


_FAMILY = "hermetic"


class Project:
    """Recipes, bases, layers and lock sections; each is read once, on its first use."""

    def __init__(self, roots: tuple[Path, ...] | None = None) -> None:
        self.roots = roots if roots is not None else search_path()
        self._cache: dict[tuple[str, str], Any] = {}

    @cached_property
    def choices(self) -> Choices:
        """The choices of the project's builder.toml. Raises InvalidError, also for an unknown base or layer."""
        path = self.roots[0] / FILE
        if not path.is_file():
            return Choices()
        choices = load_choices(path)
        known = self.layer_names()
        wanted = [] if choices.base is None or self.find_bases(choices.base) else [("base", choices.base)]
        for kind, name in (*wanted, *(("layer", layer) for layer in choices.set if layer not in known)):
            raise InvalidError(
                f"there is no {kind} {name!r}",
                id="choice-unknown",
                where=place_of([path], name),
                cause=closest(name, self.base_names() if kind == "base" else known),
                next=f"builder list {kind}s",
            )
        return choices

    def recipe_names(self) -> list[str]:
        """All recipes, sorted."""
        return list(self._once("names", "recipes", lambda folder: self._names(folder, "*.yaml")))

    def base_names(self) -> list[str]:
        """All bases, sorted."""
        return list(self._once("names", "recipes/bases", lambda folder: self._names(folder, "*.yaml")))

    def layer_names(self) -> list[str]:
        """All layers, sorted."""
        paths = (path for root in self.roots for path in root.glob("dockerfiles/layers/*/layer.yaml"))
        return sorted({path.parent.name for path in paths})

    def section_names(self) -> list[str]:
        """All lock sections, sorted."""
        return self._names("recipes/locks", "*.json")

    def recipe(self, name: str) -> Recipe:
        """A recipe by name. Raises UsageError when there is none, InvalidError when it is not valid."""
        return self._once("recipe", name, self._recipe)

    def _recipe(self, name: str) -> Recipe:
        data = extended(name, self._recipe_data)
        path = self._find(f"recipes/{name}.yaml")
        recipe = build(data, Recipe, where=str(path), text=read_text(path))
        check_name(recipe.name, name, str(path))
        return recipe

    def _recipe_data(self, name: str) -> dict[str, Any]:
        """A recipe file's own mapping, not yet merged over the recipe that it extends."""
        path = self._definition("recipe", f"recipes/{name}.yaml", name, self.recipe_names)
        data = parse_yaml(read_text(path), str(path))
        if not isinstance(data, dict):
            raise InvalidError("not a recipe", id="recipe-not-a-mapping", where=str(path))
        parent = data.get("extends")
        if isinstance(parent, str) and self._search(f"recipes/{parent}.yaml", parent) is None:
            raise InvalidError(
                f"there is no recipe {parent!r} to extend",
                id="extends-unknown",
                where=place_of([path], parent),
                cause=closest(parent, self.recipe_names()),
            )
        return data

    @cached_property
    def shared_profiles(self) -> dict[str, Profile]:
        """The profiles that every recipe can use."""
        names = self._names("recipes/profiles", "*.yaml")
        return {name: load(self._find(f"recipes/profiles/{name}.yaml"), Profile) for name in names}

    def recipe_path(self, name: str) -> Path:
        """The file of a recipe."""
        return self._find(f"recipes/{name}.yaml")

    def base(self, name: str) -> Base:
        """A base by name. Raises UsageError when there is none, InvalidError when it is not valid."""
        return self._once("base", name, self._base)

    def _base(self, name: str) -> Base:
        path = self._definition("base", f"recipes/bases/{name}.yaml", name, self.base_names)
        text = read_text(path)
        data = parse_yaml(text, str(path))
        if not isinstance(data, dict) or "stack" not in data:
            return _load(path, Base, name)
        base = stacked(data, self._family, self._usable_section, where=str(path), text=text)
        check_name(base.name, name, str(path))
        return base

    @cached_property
    def _family(self) -> dict[str, Any]:
        path = self._find(f"recipes/families/{_FAMILY}.yaml")
        data = parse_yaml(read_text(path), str(path))
        if not isinstance(data, dict):
            raise InvalidError("not a mapping", id="family-not-a-mapping", where=str(path))
        return data

    def frame(self, name: str) -> Base:
        """What a hermetic base of this name has before its wheels are known: the part that all of them share."""
        stack = {"wheels": "none"}
        return stacked({"name": name, "stack": stack}, self._family, lambda section: None, where=_FAMILY, text="")

    def _usable_section(self, name: str) -> LockSection | None:
        """A section, or None when it is missing or damaged: a plan fails then and says so, a list of bases does not."""
        try:
            return self.section(name)
        except (PinError, InvalidError):
            return None

    def base_path(self, name: str) -> Path:
        """The file of a base."""
        return self._find(f"recipes/bases/{name}.yaml")

    @cached_property
    def bases(self) -> dict[str, Base]:
        """All bases by name."""
        return {name: self.base(name) for name in self.base_names()}

    def find_bases(self, name: str) -> list[Base]:
        """The base of this name or alias, else all bases of this family; empty when there is none."""
        if name in self.base_names():
            return [self.base(name)]
        bases = self.bases.values()
        return [base for base in bases if name in base.aliases] or [base for base in bases if name == base.family]

    def layer(self, name: str) -> LayerSource:
        """A layer by name, with the files of its folder. Raises UsageError or InvalidError."""
        return self._once("layer", name, self._layer)

    def _layer(self, name: str) -> LayerSource:
        path = self._definition("layer", f"dockerfiles/layers/{name}/layer.yaml", name, self.layer_names)
        return LayerSource(_load(path, Layer, name), read_folder(path.parent), path.parent)

    def has_section(self, name: str) -> bool:
        """Whether the lock has this section."""
        return self._search(f"recipes/locks/{name}.json", name) is not None

    def section(self, name: str) -> LockSection:
        """A lock section. Raises PinError when there is none, InvalidError when it is not valid."""
        return self._once("section", name, self._section)

    def _section(self, name: str) -> LockSection:
        path = self._search(f"recipes/locks/{name}.json", name)
        if path is None:
            raise PinError(
                f"the lock has no section {name!r}",
                id="lock-section-missing",
                where="recipes/locks",
                cause=closest(name, self.section_names()),
                next=f"builder lock {name}"
                if self._is_requested(name)
                else f"request it in your recipes/locks/requests.yaml, then: builder lock {name}",
            )
        return load_section(path)

    def _is_requested(self, name: str) -> bool:
        """Whether a requests.yaml of the search path requests this section."""
        for root in self.roots:
            path = root / "recipes/locks/requests.yaml"
            data = parse_yaml(read_text(path), str(path)) if path.is_file() else None
            if isinstance(data, dict) and any(name in (data.get(kind) or ()) for kind in ("debs", "wheels")):
                return True
        return False

    def template(self, name: str) -> str:
        """The text of a shared Dockerfile template."""
        return read_text(self._find(f"dockerfiles/{name}"))

    def _once(self, kind: str, name: str, read: Callable[[str], T]) -> T:
        if (kind, name) not in self._cache:
            self._cache[kind, name] = read(name)
        value: T = self._cache[kind, name]
        return value

    def _definition(self, kind: str, relative: str, name: str, names: Callable[[], Iterable[str]]) -> Path:
        """The file of a recipe, base or layer. Raises UsageError when there is none of this name."""
        path = self._search(relative, name)
        if path is None:
            raise UsageError(
                f"there is no {kind} {name!r}",
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


def _load(path: Path, model: type[M], name: str) -> M:
    definition = load(path, model)
    check_name(getattr(definition, "name", ""), name, str(path))
    return definition


def _is_name(name: str) -> bool:
    """Whether a recipe, base, layer or lock section can have this name."""
    return re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", name) is not None


def closest(name: str, names: Iterable[str]) -> str:
    """The likely cause of an unknown name: similar ones of `names`; empty when none is similar."""
    close = difflib.get_close_matches(name, dict.fromkeys(names), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else ""
