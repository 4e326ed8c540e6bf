"""`builder list` and `builder show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from builder.cli.options import JsonOption, print_json
from builder.errors import UsageError

if TYPE_CHECKING:
    from builder.model.base import Base
    from builder.project import Project

KINDS = ("recipes", "bases", "layers")


def list_(
    kind: Annotated[str, typer.Argument(help="recipes, bases or layers.")] = "recipes", json_: JsonOption = False
) -> None:
    """List recipes, bases or layers."""
    from builder.project import Project

    if kind not in KINDS:
        raise UsageError(f"cannot list {kind!r}", cause=f"one of {', '.join(KINDS)}")
    project = Project()
    rows = {"recipes": _recipes, "bases": _bases, "layers": _layers}[kind](project)
    if json_:
        print_json(rows)
        return
    columns = {
        "recipes": ("name", "parameters", "quantization", "modalities", "memory_gb", "nodes", "builds_on", "speed"),
        "bases": ("name", "family", "vllm", "python", "pinned", "image"),
        "layers": ("name", "producer", "families", "title"),
    }[kind]
    print_table(rows, columns)


def show(name: Annotated[str, typer.Argument(help="A recipe, base or layer.")], json_: JsonOption = False) -> None:
    """Show one recipe, base or layer with everything that is known of it."""
    from builder.project import Project

    project = Project()
    if name in project.recipe_names():
        found: Any = project.recipe(name)
    elif name in project.base_names():
        found = project.base(name)
    elif name in project.layer_names():
        found = project.layer(name).definition
    else:
        import difflib

        names = dict.fromkeys([*project.recipe_names(), *project.base_names(), *project.layer_names()])
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        raise UsageError(
            f"there is no recipe, base or layer {name!r}",
            cause=f"did you mean {' or '.join(close)}?" if close else "",
            next="builder list",
        )
    data = found.model_dump(mode="json", exclude_defaults=True)
    if name in project.recipe_names():
        from builder.cli.card import card, facts

        if not json_:
            print(card(project, project.recipe(name)))
            return
        data["bases"] = facts(project, project.recipe(name))
    if json_:
        print_json(data)
        return
    import yaml

    print(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110), end="")


def _recipes(project: Project) -> list[dict[str, Any]]:
    from builder.plan.resolve import fitting_bases

    rows = []
    for name in project.recipe_names():
        recipe = project.recipe(name)
        base = project.base(recipe.base)
        rows.append(
            {
                "name": name,
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
        )
    return rows


def _bases(project: Project) -> list[dict[str, Any]]:
    return [
        {
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
        for base in project.bases.values()
    ]


def _layers(project: Project) -> list[dict[str, Any]]:
    rows = []
    for name in project.layer_names():
        layer = project.layer(name).definition
        rows.append(
            {
                "name": name,
                "title": layer.title,
                "producer": layer.producer,
                "families": list(layer.families),
                "parameters": {key: parameter.help for key, parameter in layer.parameters.items()},
            }
        )
    return rows


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
