"""The checks of a plan: of each use of a layer, and of base, layers and recipe together."""

from __future__ import annotations

from collections.abc import Callable

from builder.errors import InvalidError
from builder.plan.resolve import resolve
from builder.project import Project
from tests.support.errors import fails
from tests.support.project import Sample

LAYERS = "dockerfiles/layers"


def test_a_layer_that_is_used_twice_has_the_checks_of_both_uses(
    make_project: Callable[..., Project], small: Sample
) -> None:
    args = {"name": "{{ params.name }}", "version": "1.0"}
    small.files[f"{LAYERS}/settings/layer.yaml"] |= {
        "parameters": {"name": {"type": "text", "pattern": "[a-z]+", "help": "A distribution"}},
        "checks": [{"id": "settings-installed", "tier": "static", "kind": "distribution", "args": args}],
    }
    tiny = small.files["recipes/tiny.yaml"]
    tiny["layers"] = ["compiled", "placed", {"settings": {"name": "alpha"}}, {"settings": {"name": "beta"}}]
    project = make_project(small.files)
    checks = resolve(project, project.recipe("tiny")).checks
    assert [(check.id, check.args["name"]) for check in checks if check.kind == "distribution"] == [
        ("settings-installed-alpha", "alpha"),
        ("settings-installed-beta", "beta"),
    ]


def test_a_recipe_replaces_a_check_and_a_layer_that_of_another_does_not(
    make_project: Callable[..., Project], small: Sample
) -> None:
    def check(name: str) -> dict[str, object]:
        return {"id": "installed", "tier": "static", "kind": "distribution", "args": {"name": name, "version": "1.0"}}

    for owner, name in ((f"{LAYERS}/settings/layer.yaml", "alpha"), ("recipes/tiny.yaml", "beta")):
        small.files[owner]["checks"] = [check(name)]
    project = make_project(small.files)
    checks = resolve(project, project.recipe("tiny")).checks
    assert [each.args["name"] for each in checks if each.id == "installed"] == ["beta"]
    small.files[f"{LAYERS}/placed/layer.yaml"]["checks"] = [check("gamma")]
    project = make_project(small.files)
    with fails(InvalidError, "check-id-twice"):
        resolve(project, project.recipe("tiny"))
