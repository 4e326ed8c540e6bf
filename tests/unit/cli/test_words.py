"""A recipe as a plain word: in every command that has --recipe, beside options whose values look like it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess

import pytest

from builder.cli.app import COMMANDS, GROUPS, load_command
from builder.cli.compare.sbom import FORMATS
from builder.cli.help import PAGES
from builder.cli.recipe.list import COLUMNS
from builder.cli.words import choices
from builder.engine.select import NAMES
from builder.errors import ExitCode
from builder.oci.format import MEDIA_TYPES
from tests.support.cli import Cli
from tests.support.hints import parsed
from tests.support.project import ROOT

SAME: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("plan", "tiny"), ("plan", "--recipe", "tiny")),
    (("plan", "--base", "tiny", "tiny"), ("plan", "-r", "tiny", "--base", "tiny")),
    (("plan", "tiny", "--base=tiny"), ("plan", "-r", "tiny", "--base", "tiny")),
    (("render", "tiny", "--base", "hermetic"), ("render", "-rtiny", "--base", "hermetic")),
    (("explain", "tiny", "placed"), ("explain", "placed", "--recipe", "tiny")),
    (("explain", "tiny"), ("explain", "--recipe", "tiny")),
    (("prefetch", "tiny"), ("prefetch", "--recipe", "tiny")),
    (("plan", "tiny", "-p", "ngram", "-p", "ngram"), ("plan", "tiny", "--profile", "ngram")),
    (("graph", "tiny"), ("graph", "--recipe", "tiny")),
    (("run", "tiny", "--image", "tiny"), ("run", "--recipe", "tiny", "--image", "tiny")),
]


@pytest.mark.parametrize(("plain", "option"), SAME, ids=[" ".join(plain) for plain, _ in SAME])
def test_a_plain_word_is_the_recipe(cli: Cli, plain: tuple[str, ...], option: tuple[str, ...]) -> None:
    said, expected = cli(*plain), cli(*option)
    assert (said.code, said.out) == (expected.code, expected.out)
    assert said.code == 0


@pytest.mark.parametrize("words", [("tiny", "127.0.0.1:1/x:1"), ("127.0.0.1:1/x:1", "tiny"), ("-r", "tiny", "a/b")])
def test_references_and_recipes_are_told_apart(cli: Cli, words: tuple[str, ...]) -> None:
    cli("push", *words).failed(2, "image-not-built")
    assert cli("test", "127.0.0.1:1/x:1").code == 6, "a reference alone"
    cli("test", "tiny").failed(2, "image-not-built")


def test_several_recipes_are_built(online: Cli) -> None:
    online.small.files["recipes/second.yaml"] = {"name": "second", "title": "Second", "extends": "tiny"}
    said = online("build", "tiny", "second", "--json")
    assert [each["recipe"] for each in json.loads(said.out)] == ["tiny", "second"]


def test_too_many_words_are_refused(cli: Cli) -> None:
    assert cli("plan", "tiny", "more").code == 2
    assert cli("plan").code == 2


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_the_plain_word(cli: Cli, name: str) -> None:
    command = load_command(name)
    if any(each.name == "recipe" and "--recipe" in each.opts for each in command.params) and name != "bisect":
        assert "[RECIPE" in cli(name, "--help").out.splitlines()[0]


def test_every_command_is_in_one_group_of_the_help(cli: Cli) -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(COMMANDS)
    shown = cli("--help").out
    assert all(f"  {name.ljust(8)}  {summary}" in shown for name, (_, summary) in COMMANDS.items()), "none is cut"


@pytest.mark.parametrize(("command", "option"), [("run", "--format"), ("graph", "--format"), ("test", "--tier")])
def test_the_words_that_the_help_shows_are_the_ones_that_are_taken(cli: Cli, command: str, option: str) -> None:
    parameter = next(each for each in load_command(command).params if option in each.opts)
    said = cli(command, "tiny", option, "nothing").err
    assert all(word in said for word in parameter.metavar.split("|"))
    assert f"{option} {parameter.metavar}" in cli(command, "--help").out


def test_completion_and_help_use_the_same_words() -> None:
    assert choices("build", "engine") == NAMES
    assert choices("list", "kind") == tuple(COLUMNS)
    assert choices("sbom", "format") == tuple(FORMATS)
    assert set(choices("build", "compression")) == set(MEDIA_TYPES) - {"none"}


@pytest.mark.parametrize(
    ("words", "id"),
    [
        (("plan", "tiny", "--recipe", "tiny"), "word-too-many"),
        (("explain", "tiny", "placed", "more"), "usage"),
        (("explain", "placed", "more", "--recipe", "tiny"), "word-too-many"),
        (("test", "127.0.0.1:1/a", "127.0.0.1:1/b"), "word-too-many"),
        (("plan",), "recipe-not-given"),
        (("push", "127.0.0.1:1/a"), "recipe-not-given"),
    ],
)
def test_words_that_fit_nowhere_are_named(cli: Cli, words: tuple[str, ...], id: str) -> None:
    cli(*words).failed(2, id)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_that_parse_a_page_and_nothing_cut(cli: Cli, name: str) -> None:
    page, *examples = PAGES[name]
    assert (ROOT / "docs" / page).is_file()
    for example in examples:
        parsed(shlex.split(example.partition(" >")[0]))
    for width in ("60", "80", "160"):
        said = cli(name, "--help", COLUMNS=width).out
        assert all(f"\n  builder {example}\n" in said for example in examples)
        assert "<str>" not in said
        assert "…" not in said.partition("Examples:")[0].replace("or …@DIGEST", "")
        assert "..." not in said.partition("Arguments:")[0].partition("\n")[2]


def test_the_manual_has_every_command_and_exit_code(cli: Cli) -> None:
    said = cli("--man").out
    assert all(f"\n.SS builder {name} " in said for name in COMMANDS)
    assert said.count("\n.TP\n.B ") > 200
    assert all(f"\n.B {code.value}\n" in said for code in ExitCode)
    if shutil.which("man"):
        done = subprocess.run(
            ["man", "--warnings", "-l", "-"],
            input=said,
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""


def test_quiet_prints_results_and_errors_only(online: Cli) -> None:
    assert online("build", "tiny").err
    said = online("build", "tiny", "--quiet")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("sha256:")
    online("plan", "tin", "--quiet").failed(2, "name-unknown")
