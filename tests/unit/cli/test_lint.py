"""`builder lint` and `builder rules` as a user calls them."""

from __future__ import annotations

import json

from tests.support.cli import CommandResult, run_here
from tests.unit.cli.conftest import Cli


def shipped(cli: Cli, *words: str) -> CommandResult:
    """Run with the recipes of this repository alone, in the test's folder."""
    environ = {name: value for name, value in cli.environment({}).items() if name != "BUILDER_PROJECT"}
    return run_here(words, environ=environ, folder=cli.folder)


def test_the_shipped_recipes_pass(cli: Cli) -> None:
    result = shipped(cli, "lint", "--quiet")
    assert result.code == 0
    assert "error" not in result.out


def test_a_broken_recipe_is_exit_code_9_and_names_file_and_line(cli: Cli) -> None:
    folder = cli.folder / "recipes"
    folder.mkdir()
    (folder / "mine.yaml").write_text(
        "name: mine\ntitle: Mine\nextends: qwen3.6-35b\nserve:\n  flags:\n    enforce-eager: true\n"
    )
    result = shipped(cli, "lint", "mine")
    assert (result.code, "[rules-violated]" in result.err) == (9, True)
    assert "recipes/mine.yaml:6: error: GB10-002" in result.out
    found = json.loads(shipped(cli, "lint", "mine", "--json").out)
    assert [item["rule"] for item in found if item["level"] == "error"] == ["GB10-002"]
    sarif = json.loads(shipped(cli, "lint", "mine", "--sarif").out)
    assert "GB10-002" in {item["ruleId"] for item in sarif["runs"][0]["results"]}


def test_rules_lists_and_explains(cli: Cli) -> None:
    assert len(shipped(cli, "rules").out.splitlines()) >= 30
    assert "sm121-rules" in shipped(cli, "rules", "GB10-007").out
    assert shipped(cli, "rules", "GB10-999").code == 2


def test_odd_values_are_findings(cli: Cli) -> None:
    """A version that is none, and JSON that is too deep for a parser, were bugs."""
    cli.small.files["recipes/bases/tiny.yaml"]["triton"] = "main"
    recipe = cli.small.files["recipes/tiny.yaml"]
    recipe["env"] = {"TRITON_PTXAS_PATH": "/usr/bin/ptxas"}
    assert cli("lint", "tiny").code == cli("show", "tiny").code == 0
    recipe["base"], recipe["layers"] = "hermetic-0.23", []
    recipe["serve"] = {"flags": {"speculative-config": '{"model": ' + "[" * 4000, "compilation-config": "[" * 4000}}
    done = cli("lint", "tiny")
    assert done.code == 9 and done.out.count("is not JSON") == 2
