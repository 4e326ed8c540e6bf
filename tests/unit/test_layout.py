"""The limits of CONTRIBUTING.md: at most 300 lines in a module, and 16 modules in a folder."""

from __future__ import annotations

from collections import Counter

from tests.support.project import ROOT

MODULES = [path for path in (ROOT / "builder").rglob("*.py") if path.name != "__init__.py"]
ALL = [*MODULES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "scripts").rglob("*.py")]


def test_modules_are_short() -> None:
    lines = {str(path): len(path.read_text("utf-8").splitlines()) for path in ALL}
    assert {path: count for path, count in lines.items() if count > 300} == {}


def test_folders_are_small() -> None:
    folders = Counter(str(path.parent) for path in MODULES)
    assert len(folders) > 20
    assert {folder: count for folder, count in folders.items() if count > 16} == {}
