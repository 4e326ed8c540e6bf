"""The documents as a site: links of pages at the top of the repository, and the pages of modules."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.nightly import nightly
from tests.support.project import ROOT


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    pytest.importorskip("mkdocs", reason="mkdocs is in scripts/dev-requirements.txt")
    monkeypatch.syspath_prepend(str(ROOT / "scripts/ci"))
    import docs_hooks  # type: ignore[import-not-found]

    yield docs_hooks
    sys.modules.pop("docs_hooks", None)


class Page:
    """A page of mkdocs, as far as the hooks read it."""

    def __init__(self, place: str) -> None:
        self.file = self
        self.src_uri = place


@pytest.mark.parametrize(
    ("place", "text", "expected"),
    [
        ("index.md", "[a](docs/verify.md#bundles)", "[a](verify.md#bundles)"),
        ("index.md", "[a](LICENSE), [b](CHANGELOG.md)", "a (`LICENSE`), [b](CHANGELOG.md)"),
        ("index.md", "[a](docs/recipes/README.md)", "[a](recipes/README.md)"),
        ("publish.md", "[a](../CONTRIBUTING.md), [b](locks.md)", "[a](CONTRIBUTING.md), [b](locks.md)"),
        ("recipes/gemma4-26b.md", "[a](../rules.md#x), [b](../../README.md)", "[a](../rules.md#x), [b](../index.md)"),
        ("verify.md", "[a](https://a.example/b.md), [b](#here)", "[a](https://a.example/b.md), [b](#here)"),
        ("verify.md", "[a](../builder/errors.py), [b](../gone.md)", "a (`builder/errors.py`), [b](../gone.md)"),
    ],
)
def test_links(hooks: Any, place: str, text: str, expected: str) -> None:
    assert hooks.on_page_markdown(text, Page(place)) == expected


def test_modules_have_pages(hooks: Any) -> None:
    assert "::: builder.model.recipe" in hooks.room_page("model")
    assert "__init__" not in hooks.room_page("model")
    assert "::: builder.errors\n" in hooks.room_page("errors")
    assert all(hooks.summary(hooks.module_file(room)) for room in hooks.ROOMS)


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text("utf-8")
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("*.md")}
    assert {page for page in pages if f": {page}\n" not in menu} == set()


@nightly
def test_the_site(tmp_path: Path) -> None:
    """The job `build` of the workflow `docs` does the same for every change."""
    pytest.importorskip("mkdocs", reason="mkdocs is in scripts/dev-requirements.txt")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "class" in (tmp_path / "api/model/index.html").read_text("utf-8")
    assert "http" not in "".join(
        line
        for line in (tmp_path / "index.html").read_text("utf-8").splitlines()
        if "<script" in line or "stylesheet" in line
    )
