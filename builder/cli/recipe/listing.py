"""`builder list` and `builder show`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from builder.cli.options import JsonOption, print_json, say
from builder.errors import BuilderError, UsageError

if TYPE_CHECKING:
    from builder.model.base import Base
    from builder.model.layer import Layer
    from builder.model.recipe import Recipe
    from builder.project import Project

COLUMNS = {
    "recipes": ("name", "parameters", "quantization", "modalities", "memory_gb", "nodes", "builds_on", "speed"),
    "bases": ("name", "family", "vllm", "python", "pinned", "image"),
    "layers": ("name", "producer", "families", "title"),
}
"""What can be listed, and what a table of it shows."""


def list_(
    kind: Annotated[str, typer.Argument(help="recipes, bases or layers.")] = "recipes", json_: JsonOption = False
) -> None:
    """List recipes, bases or layers."""
    from builder.project import Project

    if kind not in COLUMNS:
        raise UsageError(f"cannot list {kind!r}", cause=f"one of {', '.join(COLUMNS)}")
    project = Project()
    rows, wrong = _rows(project, kind)
    _print(rows, kind, json_)
    for error in wrong[:-1]:
        say(f"builder: {error}")
    if wrong:
        raise wrong[-1]


def show(
    name: Annotated[str, typer.Argument(help="A recipe, a layer, or a base by name, alias or family.")],
    json_: JsonOption = False,
) -> None:
    """Show one recipe, base or layer with everything that is known of it."""
    from builder.project import Project, closest

    project = Project()
    if name in project.recipe_names():
        found: Any = project.recipe(name)
    elif name in project.layer_names():
        found = project.layer(name).definition
    elif bases := project.bases_called(name):
        if len(bases) > 1:
            _print([_base(base) for base in bases], "bases", json_)
            return
        found = bases[0]
    else:
        families = [base.family for base in project.bases.values()]
        names = dict.fromkeys([*project.recipe_names(), *project.base_names(), *families, *project.layer_names()])
        raise UsageError(
            f"there is no recipe, base or layer {name!r}",
            cause=closest(name, names),
            next="builder list",
        )
    data = found.model_dump(mode="json", exclude_defaults=True)
    if name in project.recipe_names():
        from builder.guide.card import card, facts

        if not json_:
            print(card(project, project.recipe(name)))
            return
        data["bases"] = facts(project, project.recipe(name))
    if json_:
        print_json(data)
        return
    import yaml

    print(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110), end="")


def _rows(project: Project, kind: str) -> tuple[list[dict[str, Any]], list[BuilderError]]:
    """Everything of a kind, and what is wrong with the files of the others: one hides nothing but itself."""
    rows = []
    wrong: dict[str, BuilderError] = {}
    kinds: dict[str, tuple[Callable[[], list[str]], Callable[[str], dict[str, Any]]]] = {
        "recipes": (project.recipe_names, lambda name: _recipe(project, project.recipe(name))),
        "bases": (project.base_names, lambda name: _base(project.base(name))),
        "layers": (project.layer_names, lambda name: _layer(project.layer(name).definition)),
    }
    names, row = kinds[kind]
    for name in names():
        try:
            rows.append(row(name))
        except BuilderError as error:
            wrong.setdefault(str(error), error)
    return rows, list(wrong.values())


def _recipe(project: Project, recipe: Recipe) -> dict[str, Any]:
    from builder.plan.bases import fitting_bases

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
        "pinned": _pinned(base),
        "compatible": list(recipe.compatible),
        "builds_on": [item.name for item in fitting_bases(project, recipe) if _pinned(item)],
        "layers": [use.layer for use in recipe.layers],
        "speed": f"{recipe.speed.tokens_per_second} tok/s" if recipe.speed else None,
    }


def _base(base: Base) -> dict[str, Any]:
    return {
        "name": base.name,
        "family": base.family,
        "title": base.title,
        "vllm": base.vllm,
        "python": base.python,
        "pinned": _pinned(base),
        "confidence": base.pin.confidence if base.pin else None,
        "image": base.pin.image if base.pin else None,
        "manifest": base.pin.manifest if base.pin else None,
    }


def _layer(layer: Layer) -> dict[str, Any]:
    return {
        "name": layer.name,
        "title": layer.title,
        "producer": layer.producer,
        "families": list(layer.families),
        "parameters": {key: parameter.help for key, parameter in layer.parameters.items()},
    }


def _print(rows: list[dict[str, Any]], kind: str, json_: bool) -> None:
    if json_:
        print_json(rows)
    elif rows:
        print_table(rows, COLUMNS[kind])


def _pinned(base: Base) -> bool:
    return base.pin is None or base.pin.manifest is not None


def print_table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    """Rows on standard output, with the values of `columns`."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.upper().replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[column]) for column in columns))
    console = Console()
    if not console.is_terminal:
        console.width = 200
    console.print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return (", ".join(map(str, value)) or "-") if isinstance(value, list) else str(value)
