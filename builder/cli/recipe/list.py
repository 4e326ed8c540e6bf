"""`builder list`: recipes, bases, layers and shared profiles as tables."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Annotated, Any

import typer

from builder.cli.options import JsonOption
from builder.cli.output import print_json, print_table, say
from builder.errors import BuilderError, UsageError
from builder.model.base import Base
from builder.model.layer import Layer
from builder.model.recipe import Recipe
from builder.plan.bases import fitting_bases
from builder.project import Project

COLUMNS = {
    "recipes": ("name", "parameters", "quantization", "memory_gb", "nodes", "speed", "builds_on", "modalities"),
    "bases": ("name", "aliases", "vllm", "python", "pinned", "family", "image"),
    "layers": ("name", "title", "producer", "families"),
    "profiles": ("name", "title"),
}
"""What can be listed, and the columns of its table, the important ones first."""


def list_(
    kind: Annotated[str, typer.Argument(help="What to list.")] = "recipes",
    json_: JsonOption = False,
) -> None:
    """List recipes, bases, layers, or the profiles that every recipe has. --json prints all facts."""
    if kind not in COLUMNS:
        raise UsageError(
            f"cannot list {kind!r}",
            id="list-kind-unknown",
            cause=f"one of {', '.join(COLUMNS)}",
            next=f"builder list {next(iter(get_close_matches(kind, COLUMNS, cutoff=0.75)), 'recipes')}",
        )
    rows, errors = _rows(Project(), kind)
    print_rows(rows, kind, json_)
    for error in errors[:-1]:
        say(f"builder: {error}")
    if errors:
        raise errors[-1]


def print_rows(rows: list[dict[str, Any]], kind: str, json_: bool) -> None:
    """Print rows of one kind of `COLUMNS` as JSON or as a table."""
    if json_:
        print_json(rows)
    elif rows:
        print_table(rows, COLUMNS[kind], needed=1)


def base_row(base: Base) -> dict[str, Any]:
    """The row of one base."""
    return {
        "name": base.name,
        "aliases": list(base.aliases),
        "family": base.family,
        "title": base.title,
        "vllm": base.vllm,
        "python": base.python,
        "pinned": _is_pinned(base),
        "confidence": base.pin.confidence if base.pin else None,
        "image": base.pin.image if base.pin else None,
        "manifest": base.pin.manifest if base.pin else None,
    }


def _rows(project: Project, kind: str) -> tuple[list[dict[str, Any]], list[BuilderError]]:
    """The rows of one kind, and the errors of its invalid files: an invalid file hides only itself."""
    rows = []
    errors: dict[str, BuilderError] = {}
    kinds: dict[str, tuple[Callable[[], list[str]], Callable[[str], dict[str, Any]]]] = {
        "recipes": (project.recipe_names, lambda name: _recipe_row(project, project.recipe(name))),
        "bases": (project.base_names, lambda name: base_row(project.base(name))),
        "profiles": (
            lambda: list(project.shared_profiles),
            lambda name: {"name": name, "title": project.shared_profiles[name].title},
        ),
        "layers": (project.layer_names, lambda name: _layer_row(project.layer(name).definition)),
    }
    names, row = kinds[kind]
    for name in names():
        try:
            rows.append(row(name))
        except BuilderError as error:
            errors.setdefault(str(error), error)
    return rows, list(errors.values())


def _recipe_row(project: Project, recipe: Recipe) -> dict[str, Any]:
    base = project.base(recipe.base)
    return {
        "name": recipe.name,
        "title": recipe.title,
        "model": recipe.model.id,
        "parameters": recipe.model.parameters,
        "quantization": recipe.model.quantization,
        "weights": recipe.model.weights,
        "modalities": list(recipe.model.modalities),
        "memory_gb": recipe.model.memory_gb,
        "profiles": [*recipe.profiles],
        "nodes": recipe.nodes,
        "base": base.name,
        "pinned": _is_pinned(base),
        "compatible": list(recipe.compatible),
        "builds_on": [item.name for item in fitting_bases(project, recipe) if _is_pinned(item)],
        "layers": [use.layer for use in recipe.layers],
        "speed": f"{recipe.speed.tokens_per_second} tok/s" if recipe.speed else None,
    }


def _layer_row(layer: Layer) -> dict[str, Any]:
    return {
        "name": layer.name,
        "title": layer.title,
        "producer": layer.producer,
        "families": list(layer.families),
        "parameters": {key: parameter.help for key, parameter in layer.parameters.items()},
    }


def _is_pinned(base: Base) -> bool:
    return base.pin is None or base.pin.manifest is not None
