"""plan.template: errors in a layer's templates and conditions name its file and are never reported as bugs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builder.digest import Digest
from builder.errors import InvalidError, UsageError
from builder.model.plan import Plan
from builder.plan.command import flag_words
from builder.plan.template import Quoted, render_dockerfile, render_text
from builder.plan.use import Scope, make_use
from builder.project import Project
from tests.support.errors import fails
from tests.support.hostile import limit
from tests.support.project import Sample

MakePlan = Callable[..., Plan]

BASE = Project().base("hermetic-0.20")
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
    "{{ params.items() }}",
    "{{ base.parse_raw('x') }}",
    "{{ source.__self__ }}",
    "{{ 'x' | nofilter }}",
    "{{ 'x' | attr('__class__') }}",
    "{{ 'a' * 10 ** 10 }}",
    "{{ 10 ** 10 ** 10 }}",
    "{{ range(10) }}",
    "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
    "{% for a in many %}{% for b in many %}{% for c in many %}x{% endfor %}{% endfor %}{% endfor %}",
    "{% for a in many recursive %}{{ loop(many) }}{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% set a = 'xx' %}{% set b = a ~ a %}{{ b | sh }}",
    "{% set a = 'xx' %}{% set a = a ~ a %}{{ a | sh }}",
    "{% set a %}x{% endset %}{{ a }}",
    "{% filter upper %}x{% endfilter %}",
    "{% for a in many %}" + "x" * (1 << 16) + "{% endfor %}",
    "{% for a in long %}{% for b in long %}{% endfor %}{% endfor %}",
    "{% for a in 'text' %}{% endfor %}",
    "{% for a in text %}{% endfor %}",
    "{% for a in text %}{% for b in text %}{% endfor %}{% endfor %}",
    "{% if (long | exec_form) == '' %}{% endif %}" * 10_000,
    "{{ 'x' " + "| sh " * 300 + "}}",
    "{{ " + "'x' ~ " * 10_000 + "'x' }}",
    "{{ " + "not " * 500 + "1 }}",
    "{{ params" + ".b" * 300 + " }}",
    "{{ (" + "1, " * 20_000 + ") | exec_form }}",
    "\x9b31m",
    "{{ " + "(" * 2000 + "1" + ")" * 2000 + " }}",
]


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: text[:40])
def test_a_broken_template_is_an_invalid_layer(text: str) -> None:
    values: dict[str, Any] = {
        "params": {},
        "base": BASE.model_dump(),
        "source": {}.__getitem__,
        "many": list(range(99)),
        "long": list(range(20_000)),
        "text": "x" * 20_000,
    }
    begin = time.process_time()
    with fails(InvalidError, "template-broken") as caught:
        render_dockerfile(f"FROM x\n{text}", values, "Dockerfile.j2")
    assert caught.value.where.startswith("Dockerfile.j2")
    assert time.process_time() - begin < 5


def test_templates_and_conditions_see_plain_data_only(small: Sample, make_project: Callable[..., Project]) -> None:
    project = make_project(small.files)
    recipe = project.recipe(next(iter(project.recipe_names())))
    scope = Scope(project, make_use(project, "settings", {}, set(), "here"), project.base(recipe.base), recipe)
    pending: list[object] = [scope.values, scope.base, scope.params, scope.layers]
    while pending:
        value = pending.pop()
        assert type(value) in (dict, tuple, frozenset, str, bool, int, float, type(None), Quoted, Digest), value
        pending += value.values() if isinstance(value, dict) else value if isinstance(value, tuple | frozenset) else ()


@pytest.mark.parametrize("place", ["when", "value", "dockerfile"])
@pytest.mark.parametrize("subject", ["recipe", "base"])
def test_no_template_runs_code(make_plan: MakePlan, small: Sample, tmp_path: Path, place: str, subject: str) -> None:
    """Deprecated methods of pydantic's models unpickle what they are given."""
    proof = tmp_path / "proof"
    pickled = f"cos\\nsystem\\n(S\\'touch {proof}\\'\\ntR."
    call = f"{subject}.parse_raw('{pickled}', content_type='application/pickle', allow_pickle=true)"
    if place == "dockerfile":
        small.files["dockerfiles/layers/compiled/Dockerfile.j2"] = f"FROM scratch AS {{{{ id }}}}\n{{{{ {call} }}}}\n"
    else:
        item = small.files["dockerfiles/layers/settings/layer.yaml"]["env"][0]
        item[place] = call if place == "when" else f"{{{{ {call} }}}}"
    with pytest.raises(InvalidError):
        make_plan()
    assert not proof.exists()


def test_the_pattern_of_a_parameter_cannot_hang(make_plan: MakePlan, small: Sample) -> None:
    layer = small.files["dockerfiles/layers/settings/layer.yaml"]
    layer["parameters"] = {
        "slow": {"type": "text", "pattern": "(a|a)*b", "default": "b", "help": "exponential with backtracking"}
    }
    use = next(use for use in small.files["recipes/tiny.yaml"]["layers"] if "settings" in (use, *use))
    layers = small.files["recipes/tiny.yaml"]["layers"]
    layers[layers.index(use)] = {"settings": {"slow": "a" * 100}}
    with fails(InvalidError, "layer-parameter-invalid"):
        make_plan()


def test_the_compiler_of_a_pattern_cannot_hang(make_plan: MakePlan, small: Sample) -> None:
    layer = small.files["dockerfiles/layers/settings/layer.yaml"]
    layer["parameters"] = {"slow": {"type": "text", "pattern": "a{1,1000}" * 30, "default": "a", "help": "quadratic"}}
    with limit(), fails(InvalidError, "value-invalid"):
        make_plan()


@pytest.mark.parametrize("text", ["{{ params.nothing }}", "{{ base.site }}"])
def test_a_placeholder_needs_a_value(text: str) -> None:
    with fails(InvalidError, "template-broken") as caught:
        render_text(text, {"params": {}, "base": {"site": None}}, "layer.yaml")
    assert caught.value.where == "layer.yaml"


@pytest.mark.parametrize(
    "text",
    [
        "{{ recipe.name }}",
        "{{ params.parse_raw('x') }}",
        "{{ params.mode | upper }}",
        "{{ 'a' * 10 }}",
        "{% if params.mode %}x{% endif %}",
        "{{ params.mode",
        "{{ base.__class__ }}",
    ],
)
def test_a_text_of_a_layer_has_only_placeholders(make_plan: MakePlan, small: Sample, text: str) -> None:
    small.files["dockerfiles/layers/settings/layer.yaml"]["env"][0]["value"] = text
    with fails(InvalidError, "value-invalid") as caught:
        make_plan()
    assert "only {{ base.NAME }} and {{ params.NAME }}" in str(caught.value)


def test_an_error_in_a_dockerfile_template_has_its_line() -> None:
    with fails(InvalidError, "template-broken") as caught:
        render_dockerfile("FROM x\nRUN y\n{% if %}", {}, "Dockerfile.j2")
    assert caught.value.where == "Dockerfile.j2:3"


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


def test_a_condition_omits_parts_that_do_not_apply(make_plan: MakePlan, small: Sample) -> None:
    layer = small.files["dockerfiles/layers/settings/layer.yaml"]
    layer["env"][0]["when"] = {"base.family": "ngc"}
    layer["env"][1]["when"] = {"base.python": ">3.9"}
    assert [item.name for item in make_plan().env if item.origin == "settings"] == ["MODE"]


@pytest.mark.parametrize(
    ("change", "id", "cause"),
    [
        ({"families": ["ngc"]}, "layer-family-wrong", "it is for bases of family ngc"),
        ({"needs": [{"when": {"base.cuda": "known"}, "why": "no CUDA"}]}, "layer-needs-unmet", "no CUDA"),
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
