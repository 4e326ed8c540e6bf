"""What `builder new` writes works at once: it lints and plans."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from builder.cli.recipe.new import new
from builder.errors import UsageError
from builder.knowledge.lint import lint
from builder.plan.resolve import resolve
from builder.project import Project
from tests.support.errors import fails
from tests.unit.cli.conftest import Cli


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUILDER_PROJECT", raising=False)
    monkeypatch.chdir(tmp_path)


def test_a_new_recipe_lints_and_plans() -> None:
    new("recipe", "mine", model="a/b", base="hermetic-0.23", extends=None)
    project = Project()
    assert [item for item in lint(project, ["mine"]) if item.level in ("error", "warning")] == []
    assert resolve(project, project.recipe("mine")).recipe == "mine"


@pytest.mark.parametrize(("base", "written"), [("hermetic", "hermetic-0.20"), ("hermetic-0.23", "hermetic-0.23")])
def test_an_alias_is_a_base_as_for_other_commands(base: str, written: str) -> None:
    new("recipe", "mine", model="a/b", base=base, extends=None)
    assert f"\nbase: {written}\n" in Path("recipes/mine.yaml").read_text("utf-8")


def test_a_new_recipe_has_the_facts_that_the_model_name_shows() -> None:
    for name, model, weights, checkpoint, moe in (
        ("a", "nvidia/Some-30B-A3B-NVFP4", "nvfp4", "modelopt", True),
        ("b", "somebody/My-Coder-NVFP4", "nvfp4", "compressed-tensors", False),
        ("c", "Qwen/Some-80B-A3B-FP8", "fp8", "native", True),
        ("d", "somebody/Plain-7B", "bf16", "native", False),
    ):
        new("recipe", name, model=model, base="hermetic-0.23", extends=None)
        project = Project()
        made = project.recipe(name)
        assert (made.model.weights, made.model.checkpoint, made.model.moe) == (weights, checkpoint, moe)
        assert [item for item in lint(project, [name]) if item.level in ("error", "warning")] == []


def test_a_bundled_recipe_or_layer_is_not_hidden() -> None:
    for kind, name, id in (("recipe", "nemotron-omni", "new-recipe-bundled"), ("layer", "nccl", "new-layer-bundled")):
        with fails(UsageError, id):
            new(kind, name, model=None, base=None, extends=None)
    assert list(Path().iterdir()) == []


def test_a_new_variant_lints_and_plans() -> None:
    new("recipe", "mine", model=None, base="hermetic-0.23", extends="qwen3.6-35b")
    project = Project()
    assert project.recipe("mine").model.family == "qwen3.6-35b"
    assert [item for item in lint(project, ["mine"]) if item.level == "error"] == []
    assert "mine" in resolve(project, project.recipe("mine"), base="hermetic").command


def test_a_new_layer_can_be_used() -> None:
    new("layer", "hello", model=None, base=None, extends=None)
    new("recipe", "mine", model="a/b", base="hermetic-0.23", extends=None)
    path = Path("recipes/mine.yaml")
    path.write_text(path.read_text().replace("[nccl,", "[hello, nccl,"))
    project = Project()
    assert "hello" in [layer.id for layer in resolve(project, project.recipe("mine")).layers]


def test_nothing_is_overwritten_and_names_are_checked() -> None:
    new("layer", "hello", model=None, base=None, extends=None)
    for kind, name, id in (
        ("layer", "hello", "new-file-exists"),
        ("layer", "../x", "name-invalid"),
        ("recipe", "A", "name-invalid"),
        ("base", "x", "new-base-version"),
        ("thing", "x", "new-kind-unknown"),
    ):
        with fails(UsageError, id):
            new(kind, name, model=None, base=None, extends=None)
    with pytest.raises(UsageError):
        new("recipe", "x", model="a/b", base="nope", extends=None)
    with fails(UsageError, "model-name-invalid"):
        new("recipe", "x", model="b", base="hermetic-0.23", extends=None)


def test_new_files_name_a_schema_that_is_there(cli: Cli) -> None:
    """The first line of a new file, as an editor follows it; the schema is the one that is printed."""
    for words in (("recipe", "mine"), ("layer", "mine")):
        path = cli.folder / cli("new", *words).out.strip()
        named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", path.read_text())
        assert named
        assert (path.parent / named[1]).read_text() == cli("schema", words[0]).out
    cli("schema", "nothing").failed(2, "schema-unknown")
