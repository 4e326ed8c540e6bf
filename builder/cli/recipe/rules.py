"""`builder rules`: the rules of the hardware."""

from __future__ import annotations

from typing import Annotated

import typer

from builder.cli.options import JsonOption
from builder.cli.output import print_json, print_line, print_table
from builder.knowledge.rule import Rule, all_rules, find_rule


def rules(
    id_: Annotated[str | None, typer.Argument(metavar="ID", help="A rule to explain, for example GB10-007.")] = None,
    json_: JsonOption = False,
) -> None:
    """List the rules of the hardware, or explain one."""
    if id_ is None:
        if json_:
            print_json([_as_json(item) for item in all_rules()])
            return
        print_table(map(_as_json, all_rules()), ("id", "severity", "title"), needed=2)
        return
    rule = find_rule(id_)
    if json_:
        print_json(_as_json(rule))
        return
    print_line(f"{rule.id}  {rule.title} ({rule.severity})", hang=2)
    for name, text in (("scope", rule.scope), ("why", rule.why), ("fix", rule.fix), ("source", rule.source)):
        print_line(f"  {name:8}{text}", hang=10)


def _as_json(item: Rule) -> dict[str, str]:
    return {name: getattr(item, name) for name in ("id", "title", "severity", "scope", "why", "fix", "source")}
