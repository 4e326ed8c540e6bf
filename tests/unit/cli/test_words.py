"""A recipe as a plain word: in every command that has --recipe, beside options whose values look like it."""

from __future__ import annotations

import json

import pytest

from builder.cli.app import COMMANDS, load_command
from tests.support.cli import Cli

SAME: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("plan", "tiny"), ("plan", "--recipe", "tiny")),
    (("plan", "--base", "tiny", "tiny"), ("plan", "-r", "tiny", "--base", "tiny")),
    (("plan", "tiny", "--base=tiny"), ("plan", "-r", "tiny", "--base", "tiny")),
    (("render", "tiny", "--base", "hermetic"), ("render", "-rtiny", "--base", "hermetic")),
    (("explain", "tiny", "placed"), ("explain", "placed", "--recipe", "tiny")),
    (("explain", "tiny"), ("explain", "--recipe", "tiny")),
    (("prefetch", "tiny"), ("prefetch", "--recipe", "tiny")),
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
        assert "[RECIPE]" in cli(name, "--help").out.splitlines()[0] or name in ("deploy", "serve")
