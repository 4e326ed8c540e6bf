"""`builder lint` and `builder rules` as a user calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def builder(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "builder", *words]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_the_shipped_recipes_pass() -> None:
    result = builder("lint", "--quiet")
    assert result.returncode == 0
    assert "error" not in result.stdout


def test_a_broken_recipe_is_exit_code_9_and_names_file_and_line(tmp_path: Path) -> None:
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "mine.yaml").write_text(
        "name: mine\ntitle: Mine\nextends: qwen3.6-35b\nserve:\n  flags:\n    enforce-eager: true\n"
    )
    result = builder("lint", "mine", cwd=tmp_path)
    assert result.returncode == 9
    assert "recipes/mine.yaml:6: error: GB10-002" in result.stdout
    assert "Traceback" not in result.stderr
    found = json.loads(builder("lint", "mine", "--json", cwd=tmp_path).stdout)
    assert [item["rule"] for item in found if item["level"] == "error"] == ["GB10-002"]
    assert builder("lint", "mine", "--json", "--sarif").returncode == 2


def test_rules_lists_and_explains() -> None:
    assert len(builder("rules").stdout.splitlines()) >= 30
    assert "sm121-rules" in builder("rules", "GB10-007").stdout
    assert builder("rules", "GB10-999").returncode == 2
