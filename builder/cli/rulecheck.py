"""What commands that build or serve a recipe say of the rules that it breaks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from builder.cli.options import say
from builder.errors import RuleError

if TYPE_CHECKING:
    from builder.knowledge.lint import Finding
    from builder.model.plan import Plan
    from builder.project import Project


def tell_broken(project: Project, plans: Iterable[Plan], profile: str | None) -> None:
    """Say what breaks a rule of what is about to be built; it is built all the same."""
    for plan in plans:
        _tell(item for item in _found(project, plan.recipe, plan.base, profile) if item.level == "error")


def judge(project: Project, recipe: str, base: str, profile: str | None, *, refuse: bool) -> None:
    """Say what rules have against serving this recipe. refuse: raises RuleError where one is broken.

    What a recipe overrides with a reason is left out, and so are notes: `builder lint` has them.
    """
    found = _found(project, recipe, base, profile)
    _tell(found)
    errors = list(dict.fromkeys(item.rule.id for item in found if item.level == "error"))
    if errors and refuse:
        raise RuleError(
            f"{recipe} breaks rules of the hardware: {', '.join(errors)}",
            cause="served so, it fails, is wrong or is slow",
            next=f"builder rules {errors[0]}; a recipe overrides one by `rules: {{{errors[0]}: reason}}`",
        )


def _found(project: Project, recipe: str, base: str, profile: str | None) -> list[Finding]:
    from builder.knowledge.lint import lint_recipe

    made = lint_recipe(project, project.recipe(recipe), base=base, profiles=[profile])
    return [item for item in made if item.level in ("error", "warning")]


def _tell(found: Iterable[Finding]) -> None:
    for item in found:
        breaks = "breaks" if item.level == "error" else "mind"
        say(f"{breaks} {item.rule.id}: {item.message} (fix: {item.rule.fix})")
