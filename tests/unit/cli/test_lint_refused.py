"""`builder lint` refuses what plan, build or test would refuse, with file and line, and goes on with the others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.cli import CommandResult
from tests.support.limits import ends
from tests.support.project import Sample
from tests.unit.cli.conftest import Cli

RECIPE, LAYER = "recipes/tiny.yaml", "dockerfiles/layers/placed/layer.yaml"


def place(**entry: Any) -> dict[str, Any]:
    return {"path": "etc/other", **entry}


def check(**changed: Any) -> dict[str, Any]:
    return {"id": "odd", "tier": "static", "kind": "file", "args": {"path": "/etc/placed.conf"}, **changed}


FAULTS: dict[str, tuple[str, str, Any, str, str]] = {
    # name: the file, its field, the value that is put in or added, the id, text of the line that is named
    "unknown base": (RECIPE, "base", "nowhere", "recipe-base-unknown", "nowhere"),
    "unknown compatible base": (RECIPE, "compatible", ["tiny-2"], "recipe-base-unknown", "tiny-2"),
    "unknown layer": (RECIPE, "layers", ["gone", "entrypoint"], "layer-unknown", "gone"),
    "unknown recipe to extend": (RECIPE, "extends", "gone", "extends-unknown", "gone"),
    "untouched model": (RECIPE, "model", {"id": "owner/model"}, "recipe-model-placeholder", "owner/model"),
    "unknown parameter": (RECIPE, "layers", [{"placed": {"size": 1}}], "layer-parameter-invalid", "size"),
    "unknown key": (RECIPE, "colour", "red", "key-unknown", "colour"),
    "unknown kind of check": (RECIPE, "checks", [check(kind="filez")], "check-kind-unknown", "filez"),
    "wrong argument of a check": (RECIPE, "checks", [check(args={"where": "/etc"})], "check-arguments-wrong", "odd"),
    "check of the cpu tier": (
        RECIPE, "checks", [check(tier="cpu", kind="python", args={"cod": "1"})], "check-arguments-wrong", "odd",
    ),
    "missing source": (LAYER, "files", [place(source="gone.conf")], "layer-file-missing", "gone.conf"),
    "undefined parameter": (
        LAYER, "files", [place(content="a", path="etc/{{ params.size }}")], "template-broken", "params.size",
    ),
    "file under /home": (LAYER, "files", [place(content="a", path="home/x")], "layer-path-unsafe", "home/x"),
    "file of another user": (LAYER, "files", [place(content="a", mode="04755")], "layer-path-unsafe", "etc/other"),
    "unknown section of the lock": (LAYER, "inputs", {"debs": "no-such"}, "lock-section-missing", "no-such"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _good(small: Sample) -> None:
    small.files["recipes/good.yaml"] = {**small.files[RECIPE], "name": "good", "layers": ["entrypoint"]}


def refused(done: CommandResult) -> list[str]:
    """The lines of the refusals."""
    assert (done.code, "[lint-refused]" in done.err) == (3, True), done.err
    return [line for line in done.out.splitlines() if "error: " in line]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refused_with_file_and_line(cli: Cli, small: Sample, fault: str) -> None:
    file, field, value, id, text = FAULTS[fault]
    small.files[file] = {**small.files[file], field: value}
    # Without names, every shipped recipe is checked too: test_a_layer_that_no_recipe_uses.
    (line,) = refused(cli("lint", "tiny", "good"))
    assert f"[{id}]" in line
    path, number, level, _ = line.split(":", 3)
    assert path.endswith(file) and level == " error"
    written = (cli.folder / "project" / file).read_text("utf-8").splitlines()
    assert text in written[int(number) - 1] or id == "lock-section-missing"
    # The same words are an error of the commands themselves.
    command = ("test", "--recipe", "tiny", "--tier", "static") if field == "checks" else ("plan", "--recipe", "tiny")
    if id not in ("recipe-model-placeholder", "recipe-base-unknown") and field != "checks":
        assert f"[{id}]" in cli(*command).err


def test_faults_of_several_recipes_are_one_document(cli: Cli, small: Sample) -> None:
    small.files[RECIPE] = {**small.files[RECIPE], "base": "nowhere"}
    small.files["recipes/other.yaml"] = {**small.files[RECIPE], "name": "other", "layers": ["gone"]}
    done = cli("lint", "--json")
    found = [(item["id"], item["recipe"], item["line"] > 1) for item in json.loads(done.out) if item["rule"] is None]
    assert found == [("recipe-base-unknown", "other", True), ("recipe-base-unknown", "tiny", True)]
    sarif = json.loads(cli("lint", "--sarif").out)
    assert {item["ruleId"] for item in sarif["runs"][0]["results"]} >= {"recipe-base-unknown"}


def test_a_layer_that_no_recipe_uses(cli: Cli, small: Sample) -> None:
    small.files["dockerfiles/layers/unused/layer.yaml"] = {"name": "unused", "title": "Unused"}
    (line,) = refused(cli("lint"))
    assert "dockerfiles/layers/unused/layer.yaml" in line
    assert cli("lint", "tiny").code == 0


def test_it_says_what_was_checked(cli: Cli) -> None:
    done = cli("lint")
    assert done.code == 0
    assert "checked 2 recipes, and the rules of " in done.err and "nothing is refused, no rule is broken" in done.err


def test_a_name_of_the_command_line_is_wrong_usage(cli: Cli) -> None:
    cli("lint", "nobody").failed(2, "name-unknown")


def test_the_line_of_a_long_message_is_found_in_time(cli: Cli) -> None:
    """Each quoted word of it was looked for in each line of the file, for each recipe again."""
    words = "".join(f"'\\x7a{number}'" for number in range(550))
    head = "name: evil\ntitle: x\nproducer: config\nenv:\n- name: A\n"
    cli.small.files["dockerfiles/layers/evil/layer.yaml"] = (
        f'{head}  value: "{{{{ base.no }}}}{words}"\n' + "\n" * 900_000
    )
    recipe = {**cli.small.files[RECIPE], "layers": ["evil"]}
    for number in range(4):
        cli.small.files[f"recipes/r{number}.yaml"] = {**recipe, "name": f"r{number}"}

    def work() -> None:
        said = cli("lint", "r0", "r1", "r2", "r3")
        assert said.code == 3 and said.out.count("[template-broken]") == 1, "once, for all recipes with the layer"

    ends(work)


def test_the_lines_of_many_problems_are_found_in_time(cli: Cli) -> None:
    """The file was taken apart into its lines for each of them."""
    checks = [check(id=f"odd{number}", args={"path": "/a", "other": 1}) for number in range(1000)]
    text = "".join(f"- {json.dumps(each)}\n" for each in checks)
    head = {key: value for key, value in cli.small.files[RECIPE].items() if key != "name"}
    cli.small.files["recipes/evil.yaml"] = (
        "".join(f"{key}: {json.dumps(value)}\n" for key, value in {"name": "evil", **head}.items())
        + f"checks:\n{text}"
        + "#\n" * 400_000
    )
    lines: list[str] = []
    ends(lambda: lines.extend(refused(cli("lint", "evil"))))
    assert len(lines) == 1000
    assert len({line.split(":")[1] for line in lines}) == 1000, "each has its own line"
