"""`builder lint` and `builder rules`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from builder.cli.options import BaseOption, JsonOption, print_json
from builder.errors import RuleError, UsageError

if TYPE_CHECKING:
    from builder.knowledge.lint import Finding
    from builder.knowledge.rule import Rule


def lint(
    recipes: Annotated[list[str] | None, typer.Argument(metavar="[RECIPE]...", help="Recipes; all when none.")] = None,
    base: BaseOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Leave out notes and what is overridden.")] = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF, for code scanning.")] = False,
    json_: JsonOption = False,
) -> None:
    """Check recipes against the rules of the hardware and against the options of their bases' vLLM."""
    from builder.knowledge.lint import lint as run
    from builder.project import Project

    if sarif and json_:
        raise UsageError("--json and --sarif are two forms of one output: choose one")
    project = Project()
    findings = run(project, recipes or None, base=base)
    shown = [item for item in findings if not quiet or item.level in ("error", "warning")]
    if json_:
        print_json([as_json(item) for item in shown])
    elif sarif:
        print_json(as_sarif(shown))
    else:
        for item in shown:
            print(as_text(item))
    errors = sum(item.level == "error" for item in findings)
    if errors:
        raise RuleError(
            f"{errors} violation{'s' if errors > 1 else ''} of the hardware's rules",
            cause=", ".join(dict.fromkeys(item.rule.id for item in findings if item.level == "error")),
            next="builder rules ID explains one; a recipe overrides one by `rules: {ID: reason}`",
        )


def rules(
    id_: Annotated[str | None, typer.Argument(metavar="[ID]", help="A rule, as GB10-007.")] = None,
    json_: JsonOption = False,
) -> None:
    """List the rules of the hardware, or explain one."""
    from builder.knowledge.rule import all_rules, find_rule

    if id_ is None:
        if json_:
            print_json([_rule_json(item) for item in all_rules()])
            return
        for item in all_rules():
            print(f"{item.id}  {item.severity:8} {item.title}")
        return
    found = find_rule(id_)
    if json_:
        print_json(_rule_json(found))
        return
    print(f"{found.id}  {found.title} ({found.severity})")
    for name, text in (("scope", found.scope), ("why", found.why), ("fix", found.fix), ("source", found.source)):
        print(f"  {name:8}{text}")


def as_text(item: Finding) -> str:
    """One finding as a line."""
    # What a variant inherits stands in the file of another recipe.
    where = "" if item.file.endswith(f"/{item.recipe}.yaml") else f" [recipe {item.recipe}]"
    where += f" [profile {item.profile}]" if item.profile else ""
    bases = f" [on {', '.join(item.on)}]" if item.on else ""
    reason = f"; overridden: {item.reason}" if item.reason is not None else ""
    return f"{item.file}:{item.line}: {item.level}: {item.rule.id} {item.message}{where}{bases}{reason}"


def as_json(item: Finding) -> dict[str, Any]:
    """One finding as plain data."""
    return {
        "rule": item.rule.id,
        "level": item.level,
        "recipe": item.recipe,
        "profile": item.profile,
        "bases": list(item.on),
        "message": item.message,
        "path": list(item.path),
        "file": item.file,
        "line": item.line,
        "reason": item.reason,
        "fix": item.rule.fix,
    }


def as_sarif(findings: list[Finding]) -> dict[str, Any]:
    """SARIF 2.1.0. An overridden finding is a suppressed result with its reason as justification."""
    from builder import __version__
    from builder.knowledge.rule import all_rules

    results = []
    for item in findings:
        path = Path(item.file)
        uri = path.as_uri() if path.is_absolute() else quote(item.file)
        place = {"artifactLocation": {"uri": uri}, "region": {"startLine": item.line}}
        result: dict[str, Any] = {
            "ruleId": item.rule.id,
            "level": item.rule.severity,
            "message": {"text": item.message},
            "locations": [{"physicalLocation": place}],
        }
        if item.reason is not None:
            result["suppressions"] = [{"kind": "inSource", "justification": item.reason}]
        results.append(result)
    described = [
        {
            "id": rule.id,
            "shortDescription": {"text": rule.title},
            "fullDescription": {"text": rule.why},
            "help": {"text": f"{rule.fix} ({rule.source})"},
            "defaultConfiguration": {"level": rule.severity},
        }
        for rule in all_rules()
    ]
    driver = {"name": "builder", "version": __version__, "rules": described}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def _rule_json(item: Rule) -> dict[str, str]:
    return {name: getattr(item, name) for name in ("id", "title", "severity", "scope", "why", "fix", "source")}
