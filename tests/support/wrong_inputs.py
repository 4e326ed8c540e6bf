"""Wrong inputs: at least thirty for each command. Those of options follow from the options; the others are a table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from builder.cli.app import load_command
from tests.support.project import ROOT

LEAST = 30
TABLE = ROOT / "tests/golden/wrong_inputs.txt"
"""A command line, with variables before it, the exit code and the id of the error."""

ANY = (
    ["--bogus"],
    ["--bogus=1"],
    ["--bogus", "1"],
    ["-Z"],
    ["-qZ"],
    ["--quiet=yes"],
    ["--no-quiet"],
    ["--Quiet"],
    ["--quie"],
    ["--=x"],
    ["-="],
    ["-0"],
    ["--help=1"],
    ["--help-all"],
    ["--version"],
    ["--man"],
    ["--\u202e"],
    ["--\x1b[31m"],
    ["--" + "x" * 3000],
)
"""Wrong for every command."""


def of_options(name: str) -> Iterator[list[str]]:
    """Options that a command does not have, and its own without, with an empty and with a needless value."""
    for words in ANY:
        yield [name, *words]
    for parameter in load_command(name).params:
        if parameter.param_type_name != "option" or parameter.name in ("help", "quiet"):
            continue
        option = max(parameter.opts, key=len)
        if parameter.is_flag:
            yield [name, f"{option}=x"]
        else:
            yield [name, option]
            yield [name, f"{option}="]


def table() -> Iterator[tuple[str, int, str]]:
    """The rows of the table: the command line, the exit code and the id of the error."""
    for row in TABLE.read_text("utf-8").splitlines():
        if row and not row.startswith("#"):
            words, code, id = row.rsplit(None, 2)
            yield words.rstrip(), int(code), id


def command_of(words: list[str]) -> str:
    """The command in words that may begin with variables."""
    return next(word for word in words if "=" not in word or word.startswith("-"))


def write_oddities(folder: Path) -> None:
    """Files and folders that are none of what a command needs."""
    (folder / "bad.json").write_text('{"a": [')
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "binary").write_bytes(bytes(range(256)))
    (folder / "empty").touch()
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    for name in ("dir", "badlayout"):
        (folder / name).mkdir()
        (folder / name / "index.html").write_text("mine")
    (folder / "badlayout/index.json").write_text("{")
    for name, path, text in (
        ("toml", "builder.toml", "base = ["),
        ("yaml", "recipes/tiny.yaml", "name: tiny\nbase: [\n"),
    ):
        (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / name / path).write_text(text)
