"""Merges a recipe over the recipe that it extends, and a profile over its recipe; works on plain data.

Mappings merge key by key. Lists, and each value in `flags`, `env` and `rules`, are replaced whole, so that a
speculative configuration never mixes two. null removes a key. `name`, `title`, `extends` and `speed` are not inherited
from the extended recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from builder.errors import InvalidError, UsageError
from builder.model.recipe import Profile, Recipe

_WHOLE = ("flags", "env", "rules")
_OWN = ("name", "title", "extends", "speed")
_MOST_EXTENDED = 20
DEFAULT = "default"


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
    """The recipe with the profile merged over it. shared: profiles that every recipe has. Raises UsageError."""
    if profile is None or (profile == DEFAULT and DEFAULT not in recipe.profiles):
        return recipe
    known = {**(shared or {}), **recipe.profiles}
    if profile not in known:
        raise UsageError(
            f"recipe {recipe.name} has no profile {profile!r}",
            id="profile-unknown",
            cause=f"its profiles: {', '.join([DEFAULT, *known])}",
            next=f"builder show {recipe.name}",
        )
    below = recipe.model_dump(exclude_unset=True)
    above = known[profile].model_dump(exclude_unset=True)
    above.pop("title")
    above["notes"] = (*recipe.notes, *above.get("notes", ()))
    return Recipe.model_validate(merge(below, above))
