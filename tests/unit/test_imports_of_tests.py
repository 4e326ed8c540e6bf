"""Shared test code is in tests/support: no module imports a test module, or a helper of another folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.project import ROOT

TESTS = ROOT / "tests"


def imported(path: Path) -> Iterator[str]:
    """The modules below `tests` that a file imports, `from PACKAGE import MODULE` included."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            names = [f"{node.module}.{name}" for name in names]
        yield from names


def module_file(name: str) -> Path | None:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py") if path.with_suffix(".py").is_file() else None


def wrong_imports(path: Path) -> set[str]:
    """The imports of one file that break the rule."""
    found = {name: module_file(name) for name in imported(path) if name.startswith("tests.")}
    shared = TESTS / "support"
    return {
        name
        for name, file in found.items()
        if file and file.parent != shared and (file.name.startswith("test_") or file.parent != path.parent)
    }


def test_nothing_imports_a_module_of_tests_or_of_another_folder() -> None:
    files = sorted(TESTS.rglob("*.py"))
    assert len(files) > 100
    broken = {path.relative_to(ROOT).as_posix(): wrong for path in files if (wrong := wrong_imports(path))}
    assert broken == {}
