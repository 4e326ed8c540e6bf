"""One layer of the shipped layers, planned in a recipe of its own."""

from __future__ import annotations

from typing import Any

import builder.smoke.gpu.run
import builder.smoke.static.run  # noqa: F401 (both register kinds of checks)
from builder.model.plan import PlannedLayer
from builder.model.recipe import Recipe
from builder.plan.resolve import resolve
from builder.project import Project

PROJECT = Project()


def planned(layer: str, base: str, *before: str, project: Project = PROJECT, **params: Any) -> PlannedLayer:
    recipe = Recipe.model_validate(
        {
            "name": "r",
            "title": "t",
            "model": {"id": "a/b"},
            "base": base,
            "layers": [*before, {"layer": layer, "set": params}],
            "serve": {},
        }
    )
    return next(item for item in resolve(project, recipe).layers if item.layer == layer)
