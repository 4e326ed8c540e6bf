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


def test_two_checks_with_one_id_are_refused(make_project: Callable[..., Project], small: Sample) -> None:
    check = {"id": "installed", "tier": "static", "kind": "distribution", "args": {"name": "alpha", "version": "1.0"}}
    small.files[f"{LAYERS}/settings/layer.yaml"]["checks"] = [check]
    small.files["recipes/tiny.yaml"]["checks"] = [check]
    project = make_project(small.files)
    assert [each.id for each in resolve(project, project.recipe("tiny")).checks].count("installed") == 1
    small.files["recipes/tiny.yaml"]["checks"] = [{**check, "args": {"name": "beta", "version": "1.0"}}]
    project = make_project(small.files)
    with fails(InvalidError, "check-id-twice"):
        resolve(project, project.recipe("tiny"))
