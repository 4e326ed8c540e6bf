"""Wrong inputs: each ends with the exit code and the id of its error and a next step, and leaves no file behind."""

from __future__ import annotations

import shlex
from collections import Counter

import pytest

from builder.cli.app import COMMANDS, run
from builder.errors import UsageError
from builder.retry import Budget
from tests.support.cli import Cli
from tests.support.openai_server import serving
from tests.support.wrong_inputs import LEAST, command_of, of_options, table, write_oddities

NAMES = {"HERE": "127.0.0.1:1/team/tiny", "LONG": "x" * 3000, "ZEROS": "0" * 64}


def test_each_command_has_thirty_wrong_inputs() -> None:
    every = {tuple(words) for name in COMMANDS for words in of_options(name)}
    every |= {tuple(shlex.split(words)) for words, _, _ in table()}
    counts = Counter(command_of([*words]) for words in every)
    assert {name: counts[name] for name in COMMANDS if counts[name] < LEAST} == {}


def test_wrong_options_are_told_with_a_next_step() -> None:
    odd = []
    for name in COMMANDS:
        for words in of_options(name):
            try:
                run(words)
            except UsageError as error:
                if error.id not in ("usage", "value-empty") or not error.next.startswith(f"builder {name} "):
                    odd.append((words, str(error)))
            else:
                odd.append((words, "done"))
    assert not odd


@pytest.fixture
def built(online: Cli) -> Cli:
    """A built image, and files and folders that are none of what a command needs."""
    assert online("build", "tiny").code == 0
    write_oddities(online.folder)
    online.keep = True
    return online


def test_each_wrong_input_is_told_with_a_next_step_and_leaves_nothing(
    built: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Budget, "again", lambda self, requested=None: False)

    def listed() -> set[str]:
        return {str(path) for path in built.folder.rglob("*") if "store/" not in str(path)}

    before, odd = listed(), []
    for row, code, id in table():
        for name, text in NAMES.items():
            row = row.replace(name, text)
        words = shlex.split(row)
        given = dict(word.split("=", 1) for word in words[: words.index(command_of(words))])
        said = built(*words[len(given) :], **given)
        told = f"[{id}]" in said.err and "next:" in said.err and len(said.err.splitlines()) <= 4
        left = (listed() - before) | {str(path) for path in (built.folder / "store/tmp").iterdir()}
        vague = "builder COMMAND" in said.err or "secret" in said.err or len(said.err) > 2000
        printed = said.out and command_of(words) not in ("list", "lint")
        if (said.code, told, left, vague or bool(printed)) != (code, True, set(), False):
            odd.append((row[:200], said, left))
    assert not odd


def test_a_long_name_is_cut_in_messages(cli: Cli) -> None:
    said = cli("images", NAMES["LONG"])
    said.failed(2, "name-unknown")
    assert len(said.err) < 1000


def test_a_server_that_fails_is_named(cli: Cli) -> None:
    for fault, id in (
        ("500", "bench-request-refused"),
        ("no usage", "bench-no-tokens"),
        ("not json", "bench-no-tokens"),
    ):
        with serving(fault) as (url, _):
            said = cli("bench", "--url", url, "--runs", "1", "--output-tokens", "8")
            assert (said.code, f"[{id}]" in said.err, url in said.err) == (6, True, True), said.err
