"""`builder lint`: recipes against the rules of the hardware, as text, JSON or SARIF."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from builder import __version__
from builder.cli.options import BaseOption, JsonOption
from builder.cli.output import counted, print_json
from builder.errors import RuleError, UsageError
from builder.knowledge.lint import Finding
from builder.knowledge.lint import lint as lint_recipes
from builder.knowledge.rule import all_rules
from builder.project import Project


def lint(
    recipes: Annotated[
        list[str] | None, typer.Argument(metavar="[RECIPE]...", help="Recipes to check; default: all.")
    ] = None,
    base: BaseOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no notes and no overridden findings.")] = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF, for code scanning.")] = False,
    json_: JsonOption = False,
) -> None:
    """Check recipes against the rules of the hardware and the options that the vLLM of each base accepts."""
    if sarif and json_:
        raise UsageError("--json and --sarif exclude each other", id="lint-formats-conflict")
    findings = lint_recipes(Project(), recipes or None, base=base)
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
            f"{counted(errors, 'violation')} of the rules of the hardware",
            id="rules-violated",
            cause=", ".join(dict.fromkeys(item.rule.id for item in findings if item.level == "error")),
            next="builder rules ID explains a rule; a recipe overrides a rule with `rules: {ID: reason}`",
        )


def as_text(item: Finding) -> str:
    """One finding as one line: FILE:LINE: LEVEL: RULE MESSAGE."""
    # A variant inherits findings: their file is that of another recipe.
    where = "" if item.file.endswith(f"/{item.recipe}.yaml") else f" [recipe {item.recipe}]"
    where += f" [profile {item.profile}]" if item.profile else ""
    bases = f" [on {', '.join(item.on)}]" if item.on else ""
    reason = f"; reason: {item.reason}" if item.reason is not None else ""
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
    """Findings as SARIF 2.1.0. An overridden finding is a suppressed result with its reason as justification."""
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
        "runs": [{"tool": {"driver": driver}, "results": [_sarif_result(item) for item in findings]}],
    }


def _sarif_result(item: Finding) -> dict[str, Any]:
    path = Path(item.file)
    uri = path.as_uri() if path.is_absolute() else quote(item.file)
    location = {"artifactLocation": {"uri": uri}, "region": {"startLine": item.line}}
    result: dict[str, Any] = {
        "ruleId": item.rule.id,
        "level": item.rule.severity,
        "message": {"text": item.message},
        "locations": [{"physicalLocation": location}],
    }
    if item.reason is not None:
        result["suppressions"] = [{"kind": "inSource", "justification": item.reason}]
    return result
