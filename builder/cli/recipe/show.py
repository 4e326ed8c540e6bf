"""`builder show`: one recipe, base or layer with all its facts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from builder.cli.options import JsonOption
from builder.cli.output import print_json, print_line, terminal_width
from builder.cli.proof.score import show_score
from builder.cli.recipe.list import base_row, print_rows
from builder.errors import UsageError
from builder.guide.summary import WIDTH, base_facts, recipe_summary
from builder.project import Project
from builder.text import closest


def show(
    name: Annotated[
        str,
        typer.Argument(help="A recipe, layer, shared profile, base (by name, alias or family), or image: REF."),
    ],
    signed_by: Annotated[
        list[Path] | None,
        typer.Option("--signed-by", help="Of an image: count statements by this public key. May be repeated."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Show all facts about one recipe, base or layer. For a family of several bases, list them.

    For an image in a registry, show how reproducible each layer is, as far as statements signed by the keys of
    --signed-by say it.
    """
    if "/" in name:
        show_score(name, signed_by, json=json_)
        return
    if signed_by:
        raise UsageError(
            "--signed-by is about an image in a registry",
            id="show-keys-without-image",
            next="builder show REGISTRY/REPOSITORY:TAG --signed-by KEY",
        )
    project = Project()
    if name in project.recipe_names():
        recipe = project.recipe(name)
        if json_:
            print_json({**_data(recipe), "bases": base_facts(project, recipe)})
        else:
            print(recipe_summary(project, recipe, min(WIDTH, terminal_width()) if sys.stdout.isatty() else WIDTH))
        return
    if name in project.layer_names():
        data = _data(project.layer(name).definition)
    elif len(bases := project.find_bases(name)) > 1:
        print_rows([base_row(base) for base in bases], "bases", json_)
        return
    elif bases:
        data = _data(bases[0])
    elif name in project.shared_profiles:
        data = {"name": name, **_data(project.shared_profiles[name])}
    else:
        families: list[str] = [base.family for base in project.bases.values()]
        families += [alias for base in project.bases.values() for alias in base.aliases]
        names = [*project.recipe_names(), *project.base_names(), *project.layer_names(), *project.shared_profiles]
        raise UsageError(
            f"there is no recipe, base or layer {name!r}",
            id="name-unknown",
            cause=closest(name, [*names, *families]),
            next="builder list",
        )
    if json_:
        print_json(data)
    else:
        _print(data)


def _print(data: dict[str, Any]) -> None:
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=sys.maxsize)
    for line in text.rstrip("\n").split("\n"):
        print_line(line, hang=len(line) - len(line.lstrip()) + 4)


def _data(model: Any) -> dict[str, Any]:
    """A recipe, base or layer as plain data, without values that are defaults."""
    data: dict[str, Any] = model.model_dump(mode="json", exclude_defaults=True)
    return data
