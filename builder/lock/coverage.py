"""Checks that the lock has every entry that recipes, layers and bases need. No network."""

from __future__ import annotations

import json

from builder.errors import BuilderError, UsageError
from builder.lock.findings import Problem, problem
from builder.model.base import Base
from builder.model.recipe import Recipe
from builder.model.variant import with_profile
from builder.plan.bases import bases_of
from builder.plan.locked import locked_inputs
from builder.plan.resolve import plan_toolchains, uses_of
from builder.project import Project


def unmet(project: Project) -> list[Problem]:
    """The lock entries that a recipe needs and the lock lacks, in any profile and on any base that the recipe allows.

    Only recipes of the project itself, not those of the installed package. Layers have the recipe's parameters and
    their defaults. Unpinned bases count too. Raises InvalidError for a recipe, base or layer that is not valid.
    """
    problems: dict[str, Problem] = {}
    done: set[str] = set()
    own = project.roots[0] / "recipes"
    for name in project.recipe_names():
        if project.recipe_path(name).parent != own:
            continue
        recipe = project.recipe(name)
        for profile in (None, *recipe.profiles):
            variant = with_profile(recipe, profile, project.shared_profiles)
            try:
                project.base(variant.base)
            except UsageError as error:
                problems.setdefault(error.what, problem("base", name, error))
            for base in bases_of(project, variant):
                try:
                    _check(project, base, variant, done)
                except BuilderError as error:
                    row = problem("section", f"{name} on {base.name}", error)
                    problems.setdefault(row.what, row)
    return list(problems.values())


def _check(project: Project, base: Base, recipe: Recipe, done: set[str]) -> None:
    uses = uses_of(project, base, recipe, {})
    for use in uses:
        # The same layer with the same parameters on the same base needs the same entries in every recipe.
        key = json.dumps([base.name, use.id, use.params], default=str)
        if key not in done:
            locked_inputs(project, use, base, recipe, uses)
            done.add(key)
    if "toolchain" not in done and any(use.source.definition.inputs.toolchain for use in uses):
        plan_toolchains(project)
        done.add("toolchain")
