"""On a terminal of 60, 80 and 160 columns no line of a command is too long, and no word is split."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from builder.cli.app import COMMANDS
from tests.support.cli import Cli, run_here
from tests.support.nightly import nightly_but
from tests.support.terminal import lines_of, terminal

WIDTHS = (60, 80, 160)

READ_ONLY = """
list
list bases
list layers
list profiles
show tiny
show nemotron-omni
show hermetic-0.20
show nccl
plan tiny
plan nemotron-omni --base hermetic
lint
lint tiny
rules
rules GB10-001
explain tiny
explain tiny placed
graph tiny
graph nemotron-omni --base hermetic
diff tiny nemotron-omni
images
gc -n
fsck
engines
doctor
doctor nemotron-omni
cache
test tiny --results results
lock --check
"""

_TO_PASTE = re.compile(r"builder |next: |^ +fix: |\[[a-z-]+\]$")
"""A command, and the first line of an error: they stay on one line."""


def shown(cli: Cli, columns: int, *words: str) -> list[str]:
    """What a command prints on a terminal of this width."""
    with terminal(columns) as (file, text):
        environ = cli.environment({"TERM": "xterm", "NO_COLOR": "1"})
        run_here(words, environ=environ, folder=cli.folder, stdout=file, stderr=file)
        return lines_of(text())


def piped(cli: Cli, *words: str) -> set[str]:
    """The words that a command prints into a pipe."""
    said = cli(*words)
    return {*f"{said.out} {said.err}".split()}


def odd(lines: list[str], columns: int, words: set[str]) -> list[str]:
    """Lines that are too long, but for a long name behind its label, and words that are parts of others."""
    wide = [line for line in lines if len(line) > columns and len(line.split()) > 2 and not _TO_PASTE.search(line)]
    parts = [word for line in lines for word in line.split() if word not in words and not word.endswith("…")]
    # Numbers: times differ from call to call.
    return wide + [word for word in parts if not re.search(r"\d", word)]


@pytest.mark.parametrize("columns", nightly_but(WIDTHS, 60))
def test_commands_that_change_nothing_fit(online: Cli, columns: int) -> None:
    assert online("build", "tiny").code == 0
    online.keep = True
    found = {}
    for line in READ_ONLY.strip().splitlines():
        words = line.split()
        if wrong := odd(shown(online, columns, *words), columns, piped(online, *words)):
            found[line] = wrong
    assert not found, "\n".join(f"{key}: {value[:4]}" for key, value in found.items())


def test_warnings_of_rules_fit(cli: Cli) -> None:
    cli.write()
    lines = shown(cli, 60, "run", "tiny", "--image", "x/y:1")
    warnings = [line for line in lines if line.startswith("warning: GB10-")]
    assert warnings and max(map(len, warnings)) <= 60
    assert "fix:" in " ".join(lines)


@pytest.mark.parametrize("columns", WIDTHS)
def test_help_asks_the_terminal_for_its_width(cli: Cli, columns: int) -> None:
    """In a process of its own, which replaces its streams."""
    cli.write()
    command = [sys.executable, "-m", "builder", "build", "--help"]
    with terminal(columns) as (file, text):
        subprocess.run(command, stdout=file, stderr=file, env=cli.environment({}), check=True, timeout=60)
        lines = [line for line in lines_of(text()) if not _TO_PASTE.search(line)]
    assert min(columns, 80) - 15 < max(map(len, lines)) <= min(columns, 80)


@pytest.mark.parametrize("columns", nightly_but(WIDTHS, 60))
def test_the_help_of_every_command_fits(cli: Cli, columns: int) -> None:
    found = {}
    for name in ("", *COMMANDS):
        words = (*name.split(), "--help")
        every = {word for line in shown(cli, 200, *words) for word in line.split()}
        lines = shown(cli, columns, *words)
        assert lines
        if wrong := odd(lines, columns, every):
            found[name] = wrong
    assert not found, "\n".join(f"{key}: {value[:4]}" for key, value in found.items())
