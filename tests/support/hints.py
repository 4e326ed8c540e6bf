"""Commands in messages: each must work when a user pastes it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator

from builder.cli.app import COMMANDS, load_command

_COMMAND = re.compile(rf"\bbuilder ((?:{'|'.join(COMMANDS)})\b(?: (?:'[^']*'|[^\s;,`)']|,(?! )|;(?! ))+)*)")
"""A command ends where the line, a sentence or a part of it ends: at `;`, `,` or a backquote."""

PLACEHOLDER = re.compile(r"[A-Z][A-Z-]+")
_SAFE = ("list", "show", "rules", "lint", "plan", "explain")
_OF_NOTHING = ("list", "rules")
"""Commands that depend on no name of the project, and read all that is shipped: each is run once."""
_worked: set[tuple[str, ...]] = set()
_OF_IMAGES = ("build", "test", "load", "push", "run", "render", "prefetch", "sbom")


def commands(text: str) -> Iterator[list[str]]:
    """The commands in the messages of a command, each as words without `builder`."""
    for line in text.splitlines():
        if not line.startswith(("Usage:", "Try ")):
            for found in _COMMAND.finditer(line):
                yield shlex.split(found[1])


def parsed(words: list[str]) -> dict[str, object]:
    """The options of a command line, by the names of its parameters. Fails when the command does not take them."""
    try:
        context = load_command(words[0]).make_context(words[0], words[1:])
    except Exception as error:
        raise AssertionError(f"a message says: builder {shlex.join(words)}; but: {error}") from error
    values: dict[str, object] = context.params
    return values


def check_hints(text: str, run: Callable[..., tuple[int, str]]) -> None:
    """Parse every command in messages, and run what changes nothing: for a command about an image, its plan.

    run: runs `builder` with these words where the message was printed; gives the exit code and standard error.
    """
    for words in commands(text):
        if words[1:] == ["--help"]:
            continue
        values = parsed(words)
        if any(PLACEHOLDER.fullmatch(word) for word in words):
            continue
        if words[0] in _OF_IMAGES and (recipe := values.get("recipe") or values.get("word")):
            names = [recipe] if isinstance(recipe, str) else list(recipe)  # type: ignore[call-overload]
            for name in names:
                options = [("--base", values["base"])] if values.get("base") else []
                for option in ("profile", "set_"):
                    options += [(f"--{option.strip('_')}", each) for each in values.get(option) or ()]  # type: ignore[attr-defined]
                code, said = run("plan", "--recipe", name, *(str(word) for pair in options for word in pair))
                assert code != 2, f"builder {shlex.join(words)}: {said}"
        elif words[0] in _SAFE and tuple(words) not in _worked:
            code, said = run(*words)
            assert code != 2, f"builder {shlex.join(words)}: {said}"
            if words[0] in _OF_NOTHING:
                _worked.add(tuple(words))
