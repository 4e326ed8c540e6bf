"""`builder test` of a layout: each requested check runs, or the report says why it did not."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.support.images import layout
from tests.unit.cli.conftest import Cli, CommandResult

TESTS = {
    "schemaVersion": "2.0.0",
    "commandTests": [{"name": "says", "command": "echo", "args": ["x"]}],
    "fileExistenceTests": [{"name": "there", "path": "/etc/x", "shouldExist": True}],
}
STRUCTURE = ("--structure", "tests.yaml")


@pytest.fixture
def image(cli: Cli) -> Cli:
    """`image` is a layout and `tests.yaml` a file with tests of it."""
    (cli.folder / "tests.yaml").write_text(yaml.safe_dump(TESTS))
    layout(cli.folder / "image", [{"etc/x": b"x"}])
    return cli


def run(cli: Cli, *words: str) -> CommandResult:
    return cli("test", "oci:image", *STRUCTURE, *words)


def test_a_command_of_a_structure_file_is_reported_as_not_run(image: Cli) -> None:
    done = run(image, "--json")
    found = {row["id"]: row for row in json.loads(done.out)["results"]}
    assert found["structure-there"]["status"] == "pass"
    assert found["structure-says"]["status"] == "not-run"
    assert "--tier cpu" in found["structure-says"]["message"]
    assert done.code == 0
    required = run(image, "--json", "--require")
    assert (required.code, "[smoke-checks-failed]" in required.err) == (7, True)


def test_a_check_that_was_not_run_does_not_replace_kept_results(image: Cli) -> None:
    run(image)
    (kept,) = (image.folder / "image.results").glob("*.json")
    assert {row["tier"] for row in json.loads(kept.read_text())["results"]} == {"static"}


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("nothing", "check-unknown"),
        ("structure-says", "check-of-other-tier"),
        ("serve-answer", "check-of-other-tier"),
    ],
)
def test_only_a_check_of_a_requested_tier_can_be_chosen(image: Cli, name: str, id: str) -> None:
    run(image, "--only", name).failed(2, id)


def test_reports_are_written_and_a_report_that_cannot_be_written_is_2(image: Cli) -> None:
    assert run(image, "--junit", "junit.xml", "--html", "page.html").code == 0
    assert (image.folder / "junit.xml").read_text().startswith("<?xml")
    assert "structure-there" in (image.folder / "page.html").read_text()
    run(image, "--junit", "nowhere/junit.xml").failed(2, "report-not-writable")


def test_the_gpu_tier_needs_a_recipe_and_an_image_that_docker_runs(image: Cli) -> None:
    run(image, "--tier", "gpu").failed(2, "gpu-recipe-not-given")
    run(image, "--tier", "gpu", "--recipe", "tiny").failed(2, "gpu-image-in-folder")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({}, ""),
        ({"org.builder.recipe": "other"}, ""),
        ({"org.builder.recipe": "tiny", "org.builder.base": "other"}, "builder test --recipe tiny oci:image"),
    ],
)
def test_a_failure_without_a_plan_names_the_command_that_has_it(image: Cli, labels: dict[str, str], words: str) -> None:
    layout(image.folder / "image", [{}], Labels=labels)
    done = run(image)
    assert (done.code, "[smoke-checks-failed]" in done.err) == (7, True)
    assert words in done.err and ("--recipe" in done.err) is bool(words)
