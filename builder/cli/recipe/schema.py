"""`builder schema`: the JSON schemas of the files that users write, and the line that names one to editors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from builder.atomic import write_file
from builder.cli.words import choices
from builder.errors import UsageError

FOLDER = Path(__file__).resolve().parents[2] / "schemas"


def schema(kind: Annotated[str, typer.Argument(help="The kind of file.")]) -> None:
    """Print the JSON schema of a kind of file: its keys, what they mean and what they can be.

    Editors read the schema that the first line of a file names; `builder new` and `builder add` write that line, and
    the schema into the folder `schemas` of the project.
    """
    print(_text(kind), end="")


def _text(kind: str) -> str:
    kinds = choices("schema", "kind")
    if kind not in kinds:
        raise UsageError(f"there is no schema of {kind!r}", id="schema-unknown", cause=f"one of {', '.join(kinds)}")
    return (FOLDER / f"{kind}.json").read_text("utf-8")


def with_schema(kind: str, folder: Path, path: Path, text: str) -> str:
    """The text of a new file, with the line for editors. `write_schema` writes what the line names.

    folder: of the project. path: of the file. The path in the line is relative, so that it holds in every copy.
    """
    return f"# yaml-language-server: $schema={os.path.relpath(_place(kind, folder), path.parent)}\n{text}"


def write_schema(kind: str, folder: Path) -> None:
    """Write the schema into `schemas` of a project. A checkout of builder has it."""
    path = _place(kind, folder)
    if path.parent.parent != folder / "builder":
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, _text(kind).encode())


def _place(kind: str, folder: Path) -> Path:
    own = folder / "builder/schemas" / f"{kind}.json"
    return own if own.is_file() else folder / "schemas" / f"{kind}.json"
