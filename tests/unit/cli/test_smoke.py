"""`builder test` of a layout: what is asked for is run, or said not to be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from builder.cli.app import app
from builder.errors import SmokeError, UsageError
from tests.support.images import layout

TESTS = {
    "schemaVersion": "2.0.0",
    "commandTests": [{"name": "says", "command": "echo", "args": ["x"]}],
    "fileExistenceTests": [{"name": "there", "path": "/etc/x", "shouldExist": True}],
}


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("BUILDER_STORE", str(tmp_path / "store"))
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(TESTS))
    return f"oci:{layout(tmp_path / 'image', [{'etc/x': b'x'}])}"


def run(image: str, *words: str) -> Result:
    return CliRunner().invoke(app, ["test", image, *words])


def test_commands_of_a_given_file_are_not_passed_over(image: str, tmp_path: Path) -> None:
    words = ("--structure", str(tmp_path / "tests.yaml"), "--json")
    done = run(image, *words)
    found = {row["id"]: row for row in json.loads(done.stdout)["results"]}
    assert found["structure-there"]["status"] == "pass"
    assert found["structure-says"]["status"] == "not-run"
    assert "--tier cpu" in found["structure-says"]["message"]
    assert done.exit_code == 0
    assert isinstance(run(image, *words, "--require").exception, SmokeError)


def test_they_do_not_replace_what_running_them_found(image: str, tmp_path: Path) -> None:
    run(image, "--structure", str(tmp_path / "tests.yaml"))
    (kept,) = (tmp_path / "image.results").glob("*.json")
    assert {row["tier"] for row in json.loads(kept.read_text())["results"]} == {"static"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "there is no check 'nothing'"),
        ("structure-says", "structure-says is a check of the cpu tier"),
        ("serve-answer", "serve-answer is a check of the gpu tier"),
    ],
)
def test_a_check_that_would_not_be_run_is_no_success(image: str, tmp_path: Path, name: str, said: str) -> None:
    done = run(image, "--structure", str(tmp_path / "tests.yaml"), "--only", name)
    assert isinstance(done.exception, UsageError)
    assert said in done.exception.what
