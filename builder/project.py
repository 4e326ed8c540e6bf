"""Reads recipes, bases, layers and lock sections by name from the folders of the search path.

The folders, in order: BUILDER_PROJECT, or the current folder when it has `recipes/`, `dockerfiles/` or `builder.toml`;
then the files of the installed package. The first folder that has a name wins, so a user's folder holds only new or
changed files.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from builder.choices import Choices, load_choices
from builder.derive import stacked
from builder.errors import InvalidError, PinError
from builder.folders import FILE, Folders
from builder.model.base import Base
from builder.model.layer import Layer
from builder.model.lock import LockSection, Source
from builder.model.lockfile import load_section, load_sources
from builder.model.recipe import Profile, Recipe
from builder.model.textfile import check_name, place_of, read_folder, read_text
from builder.model.variant import extended
from builder.model.yamlfile import build, load, parse_yaml
from builder.text import closest

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class LayerSource:
    """A layer's definition and the other files of its folder, by relative path."""

    definition: Layer
    files: dict[str, bytes]
    folder: Path


_FAMILY = "hermetic"
_ALL_FOLDERS = 128 << 20
"""Bytes of the files in the folders of all layers, which are in memory."""


class Project(Folders):
    """Recipes, bases, layers and lock sections; each is read once, on its first use."""

    _left = _ALL_FOLDERS

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
                f"there is no {kind} {name[:100]!r}",
                id="choice-unknown",
                where=place_of([path], name),
                cause=closest(name, self.base_names() if kind == "base" else known),
                next=f"builder list {kind}s",
            )
        return choices

    def recipe(self, name: str) -> Recipe:
        """A recipe by name. Raises UsageError when there is none, InvalidError when it is not valid."""
        return self.once("recipe", name, self._recipe)

    def _recipe(self, name: str) -> Recipe:
        data = extended(name, self._recipe_data)
        path = self._find(f"recipes/{name}.yaml")
        recipe = build(data, Recipe, where=str(path), text=self.once("text", path, read_text))
        check_name(recipe.name, name, str(path))
        return recipe

    def _recipe_data(self, name: str) -> dict[str, Any]:
        """A recipe file's own mapping, not yet merged over the recipe that it extends."""
        path = self._definition("recipe", f"recipes/{name}.yaml", name, self.recipe_names)
        # Many recipes may extend one.
        data = self.once("data", path, lambda path: parse_yaml(self.once("text", path, read_text), str(path)))
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

    def base(self, name: str) -> Base:
        """A base by name. Raises UsageError when there is none, InvalidError when it is not valid."""
        return self.once("base", name, self._base)

    def _base(self, name: str) -> Base:
        path = self._definition("base", f"recipes/bases/{name}.yaml", name, self.base_names)
        text = read_text(path)
        data = parse_yaml(text, str(path))
        if isinstance(data, dict) and "stack" in data:
            base = stacked(data, self._family, self._usable_section, where=str(path), text=text)
        else:
            base = build(data, Base, where=str(path), text=text)
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
        return self.once("layer", name, self._layer)

    def _layer(self, name: str) -> LayerSource:
        path = self._definition("layer", f"dockerfiles/layers/{name}/layer.yaml", name, self.layer_names)
        definition, files = _load(path, Layer, name), read_folder(path.parent, self._left)
        self._left -= sum(map(len, files.values()))
        return LayerSource(definition, files, path.parent)

    def has_section(self, name: str) -> bool:
        """Whether the lock has this section."""
        return self._search(f"recipes/locks/{name}.json", name) is not None

    def section(self, name: str) -> LockSection:
        """A lock section. Raises PinError when there is none, InvalidError when it is not valid."""
        return self.once("section", name, self._section)

    def _section(self, name: str) -> LockSection:
        path = self._search(f"recipes/locks/{name}.json", name)
        if path is None:
            raise PinError(
                f"the lock has no section {name!r}",
                id="lock-section-missing",
                where="recipes/locks",
                cause=closest(name, self.section_names()),
                # Any text, when a layer.yaml says so.
                next=f"builder lock {shlex.quote(name)}"
                if self._is_requested(name)
                else f"request it in your recipes/locks/requests.yaml, then: builder lock {shlex.quote(name)}",
            )
        return load_section(path)

    @cached_property
    def sources(self) -> dict[tuple[str, str], tuple[Source, str]]:
        """The sources of all folders by name and version, each with the date of its section. Raises InvalidError."""
        return load_sources([root / "recipes/locks" for root in self.roots])

    def _is_requested(self, name: str) -> bool:
        """Whether a requests.yaml of the search path requests this section."""
        for root in self.roots:
            path = root / "recipes/locks/requests.yaml"
            data = parse_yaml(read_text(path), str(path)) if path.is_file() else None
            if isinstance(data, dict) and any(name in (data.get(kind) or ()) for kind in ("debs", "wheels")):
                return True
        return False

    def template(self, name: str) -> str:
        """The text of a shared Dockerfile template: builder's own, as `render` prints what they say without a check."""
        return read_text(self.roots[-1] / "dockerfiles" / name)


def _load(path: Path, model: type[M], name: str) -> M:
    definition = load(path, model)
    check_name(getattr(definition, "name", ""), name, str(path))
    return definition
