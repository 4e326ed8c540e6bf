"""Errors in tests: `fails` asserts class and id; `messages` lists the texts, recorded in tests/golden/messages.txt."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

import builder.errors
from builder.errors import BuilderError
from builder.unpack.entry import UnpackError
from tests.support.project import ROOT

Error = TypeVar("Error", bound=BuilderError | UnpackError)
CLASSES = {name for name, value in vars(builder.errors).items() if isinstance(value, type)} - {"ExitCode"}


@contextmanager
def fails(kind: type[Error], id: str) -> Iterator[pytest.ExceptionInfo[Error]]:
    """The block raises exactly this class of error with this id."""
    with pytest.raises(kind) as caught:
        yield caught
    assert type(caught.value) is kind, repr(caught.value)
    assert caught.value.id == id, str(caught.value)


@dataclass(frozen=True, order=True)
class Message:
    """A place in the code that constructs an error. text: its message, with the source of every value in braces."""

    id: str
    kind: str
    text: str
    place: str


def messages(root: Path = ROOT / "builder") -> list[Message]:
    """Every error that the code constructs under an id of its own, read from the source and sorted by id."""
    found = []
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES:
                words = {keyword.arg: keyword.value for keyword in node.keywords}
                named = words.get("id")
                if named is not None and not isinstance(named, ast.Constant):
                    # Another error raised again, under its own id.
                    continue
                id = str(named.value) if named is not None else ""
                parts = [_text(node.args[0])] if node.args else []
                parts += [f"{name}: {_text(words[name])}" for name in ("cause", "next") if name in words]
                found.append(Message(id, node.func.id, " | ".join(parts), f"{path.relative_to(ROOT)}:{node.lineno}"))
    return sorted(found)


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        values = (
            part.value if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}" for part in node.values
        )  # type: ignore[attr-defined]
        return "".join(map(str, values))
    return f"{{{ast.unparse(node)}}}"
