"""Rule: one rule of the hardware; and the registry of all rules, those in code and those in facts.yaml."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from builder.errors import UsageError
from builder.knowledge.facts import facts
from builder.knowledge.subject import Problem, Severity, Subject

Check = Callable[[Subject], Iterator[Problem]]


@dataclass(frozen=True)
class Rule:
    """One rule. scope: the recipes and bases it applies to, as text; check: the rule as code. why, fix: for people."""

    id: str
    title: str
    severity: Severity
    scope: str
    why: str
    fix: str
    source: str
    check: Check


_REGISTER: dict[str, Rule] = {}


def rule(
    id: str, title: str, *, severity: Severity, scope: str, why: str, fix: str, source: str
) -> Callable[[Check], Check]:
    """Registers the decorated check as a rule."""

    def register(check: Check) -> Check:
        if id in _REGISTER:
            raise ValueError(f"{id} is registered twice")
        _REGISTER[id] = Rule(id, title, severity, scope, why, fix, source, check)
        return check

    return register


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by id."""
    for module in ("bases", "memory", "model", "options", "speculation"):
        import_module(f"builder.knowledge.rules.{module}")
    for fact in facts():
        texts = fact.model_dump(exclude={"cases"})
        rule(**texts)(fact.check)
    return tuple(_REGISTER[id] for id in sorted(_REGISTER))


def find_rule(id: str) -> Rule:
    """A rule by its id, in any case, or by its number. Raises UsageError."""
    wanted = f"GB10-{id:0>3}" if id.isdecimal() else id.upper()
    for item in all_rules():
        if item.id == wanted:
            return item
    raise UsageError(f"there is no rule {id!r}", id="rule-unknown", next="builder rules")
