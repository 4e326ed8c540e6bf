"""Rules of the hardware in `build` and `run`: violations are printed, and `run --exec` refuses them."""

from __future__ import annotations

from collections.abc import Iterable

from builder.cli.output import say
from builder.doctor.machine import SPARKS
from builder.errors import RuleError, UsageError
from builder.knowledge.lint import Finding, lint_recipe
from builder.model.plan import Plan
from builder.project import Project


def report_violations(project: Project, plans: Iterable[Plan], profile: str | None) -> None:
    """Print the rules that each plan breaks. The build continues."""
    for plan in plans:
        _print(item for item in _findings(project, plan.recipe, plan.base, profile) if item.level == "error")


def memory_of(machine: str | None) -> int | None:
    """The memory in GB of a machine by its name; None for None. Raises UsageError."""
    known = {name: gigabytes for gigabytes, name in SPARKS.items()}
    if machine is None or machine in known:
        return known.get(machine or "")
    raise UsageError(
        f"there is no machine {machine!r}",
        id="machine-unknown",
        cause=f"one of {', '.join(known)}",
        next="builder doctor",
    )


def check_rules(
    project: Project, recipe: str, base: str, profile: str | None, *, refuse: bool, machine: int | None = None
) -> None:
    """Print the errors and warnings of the rules about serving this recipe.

    refuse: raise RuleError when a rule is broken. Overridden rules and notes are left out: `builder lint` prints them.
    """
    findings = _findings(project, recipe, base, profile, machine)
    _print(findings)
    errors = list(dict.fromkeys(item.rule.id for item in findings if item.level == "error"))
    if errors and refuse:
        raise RuleError(
            f"{recipe} breaks rules of the hardware: {', '.join(errors)}",
            id="recipe-breaks-rules",
            cause="a server started like this fails, gives wrong results or is slow",
            next=f"builder rules {errors[0]}; a recipe overrides a rule with `rules: {{{errors[0]}: reason}}`",
        )


def _findings(
    project: Project, recipe: str, base: str, profile: str | None, machine: int | None = None
) -> list[Finding]:
    found = lint_recipe(project, project.recipe(recipe), base=base, profiles=[profile], machine=machine)
    return [item for item in found if item.level in ("error", "warning")]


def _print(findings: Iterable[Finding]) -> None:
    for item in findings:
        verb = "breaks" if item.level == "error" else "warning:"
        say(f"{verb} {item.rule.id}: {item.message} (fix: {item.rule.fix})", hang=2)
