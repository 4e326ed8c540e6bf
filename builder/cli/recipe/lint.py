"""`builder lint`: what is wrong with recipes, as text, JSON or SARIF: refusals, and the rules of the hardware."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from builder import __version__
from builder.cli.options import BaseOption, JsonOption, MachineOption
from builder.cli.output import counted, print_json, print_line, say
from builder.cli.recipe.refused import Refused, own_recipes, refused
from builder.cli.rulecheck import memory_of
from builder.errors import InvalidError, RuleError, UsageError
from builder.knowledge.lint import Finding
from builder.knowledge.lint import lint as lint_recipes
from builder.knowledge.rule import all_rules
from builder.project import Project
from builder.text import closest, one_line


def lint(
    recipes: Annotated[
        list[str] | None, typer.Argument(metavar="RECIPE", help="Recipes to check; default: all.")
    ] = None,
    base: BaseOption = None,
    machine: MachineOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no notes and no overridden findings.")] = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF, for code scanning.")] = False,
    json_: JsonOption = False,
) -> None:
    """Check recipes: what plan, build or test would refuse, the rules of the hardware, and the options of vLLM.

    Exit status 3 when one would be refused, 9 when one breaks a rule.
    """
    if sarif and json_:
        raise UsageError("--json and --sarif exclude each other", id="lint-formats-conflict")
    memory = memory_of(machine)
    project = Project()
    if base is not None and not project.find_bases(base):
        names = [name for each in project.bases.values() for name in (each.name, each.family, *each.aliases)]
        raise UsageError(
            f"there is no base {base!r}", id="name-unknown", cause=closest(base, names), next="builder list bases"
        )
    for name in recipes or ():
        # A name of the command line, and not of a file.
        if name not in project.recipe_names():
            project.recipe(name)
    wrong = list(refused(project, recipes or None, base))
    broken = {item.recipe for item in wrong}
    # What is wrong in one file is said once, also when several recipes use it.
    wrong = list({(item.error.what, item.file): item for item in reversed(wrong)}.values())[::-1]
    findings = lint_recipes(project, recipes or None, base=base, without=broken, machine=memory)
    shown = [item for item in findings if not quiet or item.level in ("error", "warning")]
    if json_:
        print_json([*map(refused_as_json, wrong), *map(as_json, shown)])
    elif sarif:
        print_json(as_sarif(shown, wrong))
    else:
        for each in wrong:
            _print(each)
        for item in shown:
            print_line(as_text(item), status=item.level, hang=2)
    if wrong:
        raise InvalidError(
            f"{counted(len(wrong), 'problem')} that plan, build or test would refuse",
            id="lint-refused",
            cause=f"printed above{'' if broken == {''} else ', with file and line'}",
            next="mend each, then repeat the command",
        )
    errors = sum(item.level == "error" for item in findings)
    if errors:
        raise RuleError(
            f"{counted(errors, 'violation')} of the rules of the hardware",
            id="rules-violated",
            cause=", ".join(dict.fromkeys(item.rule.id for item in findings if item.level == "error")),
            next="builder rules ID, for the reason of a rule; a recipe overrides a rule with `rules: {ID: reason}`",
        )
    own = recipes or own_recipes(project)
    others = 0 if recipes else len(project.recipe_names()) - len(own)
    shipped = f", and the rules of {counted(others, 'shipped recipe')}" if others else ""
    say(f"checked {counted(len(own), 'recipe')}{shipped}: nothing is refused, no rule is broken", hang=2)


def _print(item: Refused) -> None:
    """Print a refusal. On a terminal its step is a line of its own, which stays whole: a command to be pasted."""
    text, step = refused_as_text(item), item.error.next
    if step and sys.stdout.isatty():
        print_line(text.removesuffix(f"; {step}"), status="error", hang=2)
        print_line(f"  next: {step}")
    else:
        print_line(text, status="error")


def refused_as_text(item: Refused) -> str:
    """One refusal as one line: FILE:LINE: error: MESSAGE [ID]."""
    error = item.error
    parts = (f"{item.file}:{item.line}: error: {error.what} [{error.id}]", error.cause, error.next)
    return one_line("; ".join(filter(None, parts)))


def refused_as_json(item: Refused) -> dict[str, Any]:
    """One refusal as plain data, with the keys of a finding."""
    error = item.error
    return {
        "rule": None,
        "id": error.id,
        "level": "error",
        "recipe": item.recipe,
        "profile": None,
        "bases": [],
        "message": error.what,
        "path": [],
        "file": item.file,
        "line": item.line,
        "reason": error.cause or None,
        "fix": error.next,
    }


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


def as_sarif(findings: list[Finding], wrong: Sequence[Refused] = ()) -> dict[str, Any]:
    """Findings and refusals as SARIF 2.1.0.

    An overridden finding is a suppressed result with its reason as justification.
    """
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
        "runs": [
            {
                "tool": {"driver": driver},
                "results": [
                    *(_sarif_result(item.error.id, "error", item.error.what, item.file, item.line) for item in wrong),
                    *(_sarif_finding(item) for item in findings),
                ],
            }
        ],
    }


def _sarif_result(rule: str, level: str, message: str, file: str, line: int) -> dict[str, Any]:
    path = Path(file)
    uri = path.as_uri() if path.is_absolute() else quote(file)
    location = {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": message},
        "locations": [{"physicalLocation": location}],
    }


def _sarif_finding(item: Finding) -> dict[str, Any]:
    result = _sarif_result(item.rule.id, item.rule.severity, item.message, item.file, item.line)
    if item.reason is not None:
        result["suppressions"] = [{"kind": "inSource", "justification": item.reason}]
    return result
