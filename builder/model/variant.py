"""Merges a recipe over the recipe that it extends, and a profile over its recipe; works on plain data.

Mappings merge key by key. Lists, and each value in `flags`, `env` and `rules`, are replaced whole, so that a
speculative configuration never mixes two. null removes a key. `name`, `title`, `extends` and `speed` are not inherited
from the extended recipe.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from builder.errors import InvalidError, UsageError
from builder.model.recipe import Profile, Recipe
from builder.text import closest

_WHOLE = ("flags", "env", "rules")
_OWN = ("name", "title", "extends", "speed")
_MOST_EXTENDED = 20
DEFAULT = "default"
AND = "+"
"""Between the names of several profiles; no name has it."""


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` merged over `below`."""
    merged = dict(below)
    if "id" in above and above["id"] != below.get("id"):
        # A revision belongs to the repository that it is a commit of.
        merged.pop("revision", None)
    for key, value in above.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = _flat(merged[key], value) if key in _WHOLE else merge(merged[key], value)
        else:
            merged[key] = _flat({}, value) if key in _WHOLE and isinstance(value, Mapping) else value
    return merged


def _flat(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**below, **above}.items() if value is not None}


def extended(name: str, read: Callable[[str], Mapping[str, Any]], seen: tuple[str, ...] = ()) -> dict[str, Any]:
    """The data of recipe `name`, merged over the recipe that it extends. read: a recipe's own data by name.

    Raises InvalidError when a recipe extends itself, directly or not.
    """
    data = dict(read(name))
    parent = data.get("extends")
    if parent is None:
        return data
    if not isinstance(parent, str) or parent in (*seen, name):
        raise InvalidError(
            f"recipe {name!r} extends {parent!r}, which extends it in turn",
            id="recipe-extends-itself",
            where=f"recipes/{name}.yaml",
        )
    if len(seen) > _MOST_EXTENDED:
        raise InvalidError(
            f"more than {_MOST_EXTENDED} recipes extend each other",
            id="recipe-extends-too-deep",
            where=f"recipes/{name}.yaml",
        )
    below = {k: v for k, v in extended(parent, read, (*seen, name)).items() if k not in _OWN}
    return merge(below, data)


def with_profile(recipe: Recipe, profile: str | None, shared: Mapping[str, Profile] | None = None) -> Recipe:
    """The recipe with a profile merged over it, or several, joined by `+`. shared: profiles that every recipe has.

    Raises UsageError for an unknown profile, and for two that set one key to different values.
    """
    known = {**(shared or {}), **recipe.profiles}
    names = sorted({*(profile or DEFAULT).split(AND)} - ({DEFAULT} - known.keys()))
    if not names:
        return recipe
    data = recipe.model_dump(exclude_unset=True)
    done: dict[tuple[str, ...], tuple[str, Any]] = {}
    for name in names:
        if name not in known:
            raise UsageError(
                f"recipe {recipe.name} has no profile {name!r}",
                id="profile-unknown",
                cause=closest(name, known) or f"its profiles: {', '.join([DEFAULT, *known])}",
                next=f"builder show {recipe.name}",
            )
        above = known[name].model_dump(exclude_unset=True)
        for key in ("title", "speed") if len(names) > 1 else ("title",):
            # What one of them was measured to do says nothing about several.
            above.pop(key, None)
        above["notes"] = (*data.get("notes", ()), *above.get("notes", ()))
        for path, value in _settings(above):
            _refuse_contradiction(done, path, name, value)
        data = merge(data, above)
    return Recipe.model_validate(data)


def _settings(data: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each key that a profile sets, as a path, with its value; `notes` add up, and `rules` only give reasons."""
    for key, value in data.items():
        here = (*path, key)
        if here[0] in ("notes", "rules"):
            continue
        if isinstance(value, Mapping) and path[-1:] not in [(each,) for each in _WHOLE]:
            yield from _settings(value, here)
        else:
            yield here, value


def _refuse_contradiction(
    done: dict[tuple[str, ...], tuple[str, Any]], path: tuple[str, ...], name: str, value: Any
) -> None:
    """Note what profile `name` sets. Raises UsageError when an earlier one sets the same key to another value."""
    other, before = done.setdefault(path, (name, value))
    if before != value:
        first, second = (json.dumps(each, ensure_ascii=False, default=str) for each in (before, value))
        raise UsageError(
            f"profiles {other} and {name} contradict each other",
            id="profiles-contradict",
            cause=f"{'.'.join(path)} is {first} in {other}, and {second} in {name}",
            next="name one of them",
        )
