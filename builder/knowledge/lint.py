"""`builder lint`: checks every profile of a recipe against all rules, on every base that the recipe allows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import yaml

from builder.errors import UsageError
from builder.knowledge.rule import Rule, all_rules
from builder.knowledge.subject import Subject
from builder.model.base import Base
from builder.model.recipe import Recipe
from builder.model.textfile import read_text
from builder.model.variant import with_profile
from builder.model.yamlfile import compose, line_of
from builder.plan.bases import fitting_bases, select_base
from builder.plan.use import Scope, make_use
from builder.project import Project
from builder.text import relative_path

_WITHOUT_COMMAND = ("GB10-022", "GB10-023", "GB10-024", "GB10-025", "GB10-028", "GB10-036", "GB10-037")
"""The rules that apply to a base that builds its serving command itself: those about the base."""


@dataclass(frozen=True)
class Finding:
    """A rule that a recipe breaks. reason: of the override; None without one. on: bases; empty when on all."""

    rule: Rule
    recipe: str
    message: str
    path: tuple[str, ...]
    profile: str | None = None
    reason: str | None = None
    on: tuple[str, ...] = ()
    file: str = ""
    line: int = 1

    @property
    def level(self) -> str:
        """error, warning, note, or overridden."""
        return "overridden" if self.reason is not None else self.rule.severity


def lint(
    project: Project,
    names: Iterable[str] | None = None,
    *,
    base: str | None = None,
    without: Collection[str] = (),
    machine: int | None = None,
) -> list[Finding]:
    """Findings for these recipes, in the order of recipes, profiles and rules.

    names: all when None; with a base, those that can be built on it. without: recipes to leave out. machine: its memory
    in GB; default: what each recipe is for. Raises UsageError
    for an unknown base, and for a named recipe that cannot be built on it.
    """
    found: list[Finding] = []
    fits = False
    for name in project.recipe_names() if names is None else names:
        if name in without:
            continue
        recipe = project.recipe(name)
        if names is None and base is not None and not _fits(project, recipe, base):
            continue
        fits = True
        found += lint_recipe(project, recipe, base=base, machine=machine)
    if not fits and base is not None and names is None and not without:
        raise UsageError(
            f"no recipe can be built on base {base!r}",
            id="base-without-recipe",
            next="builder list bases; builder list",
        )
    return found


def _fits(project: Project, recipe: Recipe, base: str) -> bool:
    """Whether the recipe or one of its profiles can be built on the base."""
    profiles = (None, *recipe.profiles)
    return any(_bases(project, with_profile(recipe, profile, project.shared_profiles), base) for profile in profiles)


def _bases(project: Project, recipe: Recipe, base: str | None) -> list[Base]:
    """The bases to check: `base` if the recipe can be built on it; without `base`, all that the recipe names."""
    if base is None:
        return fitting_bases(project, recipe)
    try:
        return [select_base(project, recipe, base)]
    except UsageError:
        return []


def lint_recipe(
    project: Project,
    recipe: Recipe,
    *,
    base: str | None = None,
    profiles: Sequence[str | None] | None = None,
    machine: int | None = None,
) -> list[Finding]:
    """Findings for one recipe. base, profiles: only these (None is the recipe itself). machine: as in `lint`."""
    found: list[Finding] = []
    places = _Places(project, recipe)
    if base is not None and not _fits(project, recipe, base):
        select_base(project, recipe, base)
    for profile in profiles if profiles is not None else (None, *recipe.profiles):
        served = with_profile(recipe, profile, project.shared_profiles)
        # A profile may have a base of its own.
        bases = _bases(project, served, base)
        for finding in _merged([_findings(project, served, item, profile, machine) for item in bases], len(bases)):
            inherited = any(_same(finding, other) for other in found)
            if not inherited:
                found.append(replace(finding, file=str(places.find(finding)[0]), line=places.find(finding)[1]))
    return found


def subject(
    project: Project, recipe: Recipe, base: Base, profile: str | None = None, machine: int | None = None
) -> Subject:
    """The input of the rules: the recipe on that base. Needs neither pins nor locks of the base."""
    env: dict[str, str] = dict(base.env)
    unfit: list[tuple[str, str]] = []
    taken: set[str] = set()
    for use in recipe.layers:
        made = make_use(project, use.layer, use.set, taken, f"recipes/{recipe.name}.yaml")
        definition = made.source.definition
        if base.family not in definition.families:
            unfit.append((use.layer, f"it is for bases of family {', '.join(definition.families)}"))
            continue
        scope = Scope(project, made, base, recipe)
        why = next((item.why for item in definition.needs if not scope.holds(item.when)), None)
        if why is not None:
            unfit.append((use.layer, why))
            continue
        env |= {item.name: scope.text(item.value) for item in definition.env if scope.holds(item.when)}
    return Subject(recipe, base, {**env, **recipe.env, **recipe.run.env}, tuple(unfit), profile, machine)


def _findings(project: Project, recipe: Recipe, base: Base, profile: str | None, machine: int | None) -> list[Finding]:
    checked = subject(project, recipe, base, profile, machine)
    return [
        Finding(rule, recipe.name, problem.message, problem.path, profile, recipe.rules.get(rule.id), (base.name,))
        for rule in all_rules()
        if base.entrypoint != "environment" or rule.id in _WITHOUT_COMMAND
        for problem in rule.check(checked)
    ]


def _merged(lists: Sequence[Sequence[Finding]], count: int) -> Iterator[Finding]:
    """The findings of several bases, equal ones merged into one."""
    merged: dict[tuple[str, str, tuple[str, ...]], Finding] = {}
    for findings in lists:
        for item in findings:
            key = (item.rule.id, item.message, item.path)
            before = merged.get(key)
            merged[key] = replace(before, on=(*before.on, *item.on)) if before else item
    for item in sorted(merged.values(), key=lambda finding: finding.rule.id):
        yield replace(item, on=()) if len(item.on) == count else item


def _same(one: Finding, other: Finding) -> bool:
    mine, theirs = ((item.rule.id, item.message, item.level) for item in (one, other))
    return mine == theirs and other.profile is None


class _Places:
    """Finds the line of a finding in a recipe's file or in the files that it extends."""

    def __init__(self, project: Project, recipe: Recipe) -> None:
        self._project = project
        self._files: list[Path] = []
        name: str | None = recipe.name
        while name is not None and name in project.recipe_names() and len(self._files) < 9:
            self._files.append(project.recipe_path(name))
            name = project.recipe(name).extends

    @cached_property
    def _nodes(self) -> list[tuple[Path, yaml.Node | None]]:
        # Several recipes may extend one.
        return [(path, self._project.once("nodes", path, self._composed)) for path in self._files]

    def _composed(self, path: Path) -> yaml.Node | None:
        return compose(self._project.once("text", path, read_text))

    def find(self, finding: Finding) -> tuple[str, int]:
        """File and line of the longest part of the finding's path that is in the profile or the recipe."""
        for length in range(len(finding.path), 0, -1):
            path = finding.path[:length]
            for prefix in ([("profiles", finding.profile)] if finding.profile else []) + [()]:
                for file, node in self._nodes:
                    if (line := line_of(node, (*prefix, *path), exact=True)) is not None:
                        return relative_path(file), line
        return (relative_path(self._files[0]), 1) if self._files else (f"recipes/{finding.recipe}.yaml", 1)
