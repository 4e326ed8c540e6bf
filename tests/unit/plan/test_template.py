"""plan.template: errors in a layer's templates and conditions name its file and are never reported as bugs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from builder.errors import InvalidError, UsageError
from builder.model.plan import Plan
from builder.plan.command import flag_words
from builder.plan.template import evaluate, render_dockerfile, render_text
from builder.versions import python_version
from tests.support.errors import fails
from tests.support.project import Sample

MakePlan = Callable[..., Plan]

BROKEN = [
    "{{ nothing }}",
    "{{ params.nothing }}",
    "{{ params['x' }}",
    "{{ 1 / 0 }}",
    "{{ 'x'.index('y') }}",
    "{{ 'x' + 1 }}",
    "{{ none.x }}",
    "{{ source('nothing') }}",
    "{% if %}",
    "{% include 'other' %}",
    "{{ ''.__class__.__mro__ }}",
    "{{ params.__init__.__globals__ }}",
    "{{ 'x' | nofilter }}",
]


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_template_is_an_invalid_layer(text: str) -> None:
    values: dict[str, Any] = {"params": {}, "source": {}.__getitem__}
    with fails(InvalidError, "template-broken") as caught:
        render_text(text, values, "layer.yaml")
    assert caught.value.where == "layer.yaml"
    with fails(InvalidError, "template-broken") as caught:
        render_dockerfile(f"FROM x\n{text}", values, "Dockerfile.j2")
    assert caught.value.where.startswith("Dockerfile.j2")


@pytest.mark.parametrize("text", ["nothing", "1 +", "1 / 0", "'a' < 1", "params.__class__.__init__.__globals__", "x.y"])
def test_a_broken_condition_is_an_invalid_layer(text: str) -> None:
    with fails(InvalidError, "expression-broken") as caught:
        evaluate(text, {"params": {}}, "layer.yaml")
    assert caught.value.where == "layer.yaml"


def test_an_error_in_a_dockerfile_template_has_its_line() -> None:
    with fails(InvalidError, "template-broken") as caught:
        render_dockerfile("FROM x\nRUN y\n{% if %}", {}, "Dockerfile.j2")
    assert caught.value.where == "Dockerfile.j2:3"


@pytest.mark.parametrize(
    ("one", "other"),
    [("3.6.0", "3.10"), ("2.28.9-1", "2.29.2-1"), (None, "0.1"), ("no version", "0.1"), ("0.9", "0.20")],
)
def test_versions_compare_as_versions(one: str | None, other: str) -> None:
    assert python_version(one) < python_version(other)
    assert evaluate("version(one) < version(other)", {"one": one, "other": other}, "layer.yaml") is True


def test_flags_become_words() -> None:
    flags = {
        "switch": True,
        "off": False,
        "left-out": None,
        "number": 0.8,
        "text": "a b",
        "json": {"video": {"fps": 2, "name": "ä"}, "on": True},
        "many": ("a", 1),
    }
    assert flag_words(flags) == [
        *("--switch", "--no-off", "--number", "0.8", "--text", "a b"),
        *("--json", '{"video":{"fps":2,"name":"ä"},"on":true}', "--many", "a", "1"),
    ]


def test_a_condition_leaves_out_what_does_not_apply(make_plan: MakePlan, small: Sample) -> None:
    layer = small.files["dockerfiles/layers/settings/layer.yaml"]
    layer["env"][0]["when"] = "base.family == 'ngc'"
    layer["env"][1]["when"] = "version(base.python) > version('3.9')"
    assert [item.name for item in make_plan().env if item.origin == "settings"] == ["MODE"]


@pytest.mark.parametrize(
    ("change", "id", "cause"),
    [
        ({"families": ["ngc"]}, "layer-family-wrong", "it is for bases of family ngc"),
        ({"needs": [{"when": "base.cuda", "why": "no CUDA"}]}, "layer-needs-unmet", "no CUDA"),
    ],
)
def test_a_layer_that_does_not_apply_is_refused_with_the_cause(
    make_plan: MakePlan, small: Sample, change: dict[str, Any], id: str, cause: str
) -> None:
    small.files["dockerfiles/layers/settings/layer.yaml"] |= change
    with fails(UsageError, id) as caught:
        make_plan()
    assert caught.value.cause == cause


@pytest.mark.parametrize(
    ("file", "change", "id"),
    [
        ("settings", {"env": [{"name": "A", "value": "{{ 'a\\nb' }}"}]}, "template-not-one-line"),
        ("settings", {"labels": [{"name": "a", "value": "{{ 'a\\nb' }}"}]}, "template-not-one-line"),
        ("placed", {"files": [{"path": "etc/{{ 'a\\nb' }}", "content": "x"}]}, "template-not-one-line"),
        ("placed", {"files": [{"path": "etc/a", "source": "not-there"}]}, "layer-file-missing"),
        ("placed", {"files": [{"path": "etc/a", "source": "binary"}]}, "file-not-text"),
    ],
)
def test_text_that_no_image_can_hold_is_refused(
    make_plan: MakePlan, small: Sample, file: str, change: dict[str, Any], id: str
) -> None:
    small.files["dockerfiles/layers/placed/binary"] = b"\xff\xfe"
    small.files[f"dockerfiles/layers/{file}/layer.yaml"] |= change
    with fails(InvalidError, id) as caught:
        make_plan()
    assert f"/dockerfiles/layers/{file}/" in caught.value.where
