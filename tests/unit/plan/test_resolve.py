"""What a recipe, a base and the lock resolve to, and what is refused before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from builder.errors import BuilderError, ExitCode, InvalidError, PinError, UsageError
from builder.model.plan import Plan
from builder.plan.resolve import MAX_LAYERS, parse_sets
from builder.project import Project
from tests.support.project import Sample, vendor_base

MakePlan = Callable[..., Plan]
LAYERS = "dockerfiles/layers"


def test_layers_come_in_order_the_bases_own_first(make_plan: MakePlan) -> None:
    plan = make_plan()
    ids = [layer.id for layer in plan.layers]
    assert ids == ["root", "wheels-alpha", "wheels-other", "compiled", "placed", "settings", "entrypoint"]
    assert [layer.id for layer in plan.toolchains] == ["toolchain-amd64", "toolchain-arm64"]


def test_a_group_without_names_takes_what_no_other_group_takes(make_plan: MakePlan) -> None:
    names = {layer.id: [item.name for item in layer.inputs] for layer in make_plan().layers}
    assert names["wheels-alpha"] == ["alpha 1.0"]
    assert names["wheels-other"] == ["beta 1.0", "gamma 1.0"]


def test_environment_is_base_then_layers_then_recipe(make_plan: MakePlan) -> None:
    env = [(item.name, item.value, item.prepend, item.origin) for item in make_plan().env]
    assert env == [
        ("PATH", "/usr/bin", False, "tiny"),
        ("LANG", "C.UTF-8", False, "tiny"),
        ("WIDGET", "1.0", False, "compiled"),
        ("LIBS", "/opt/widget", True, "settings"),
        ("MODE", "fast", False, "settings"),
        ("LAST", "word", False, "tiny"),
    ]


def test_labels_say_what_it_is(make_plan: MakePlan) -> None:
    labels = dict(make_plan().labels)
    assert labels["org.opencontainers.image.title"] == "tiny"
    assert labels["org.builder.base"] == "tiny"
    assert labels["org.example.widget"] == "1.0"
    assert "org.opencontainers.image.base.name" not in labels


def test_created_is_the_newest_date_of_a_section_that_is_used(make_plan: MakePlan, small: Sample) -> None:
    small.files["recipes/locks/sources.json"]["locked"] = "2026-05-01T00:00:00Z"
    small.add_debs("not-used", {})
    small.files["recipes/locks/not-used.json"]["locked"] = "2030-01-01T00:00:00Z"
    assert make_plan().created == "2026-05-01T00:00:00Z"


def test_parameters_reach_the_layer(make_plan: MakePlan) -> None:
    layer = next(item for item in make_plan(sets={"compiled": {"version": "2.0"}}).layers if item.id == "compiled")
    assert [item.name for item in layer.inputs] == ["widget 2.0"]
    assert layer.params == {"version": "2.0", "words": "all"}
    assert dict(layer.labels) == {"org.example.widget": "2.0"}
    assert "widget-2.0.tar.gz" in (layer.dockerfile or "")


def test_a_recipe_sets_parameters_and_the_command_line_overrides_them(make_plan: MakePlan, small: Sample) -> None:
    small.files["recipes/tiny.yaml"]["layers"][0] = {"compiled": {"version": "2.0", "words": "some"}}
    params = make_plan(sets={"compiled": {"words": "other"}}).layers[3].params
    assert params == {"version": "2.0", "words": "other"}


def test_the_plan_prints_as_json(make_plan: MakePlan) -> None:
    import json

    data = json.loads(json.dumps(make_plan().to_json()))
    assert data["cmd"] == ["someone/tiny", "--port", "8000"]
    assert [layer["id"] for layer in data["layers"]][:2] == ["root", "wheels-alpha"]
    assert data["layers"][0]["inputs"][0].keys() == {"kind", "name", "sha256", "size"}


def vendor(small: Sample, manifest: str | None = "sha256:" + "a" * 64, compatible: tuple[str, ...] = ()) -> None:
    small.files["recipes/bases/vendor.yaml"] = vendor_base("registry.example/a/b:1", str(manifest))
    small.files["recipes/bases/vendor.yaml"]["pin"]["manifest"] = manifest
    small.files["recipes/tiny.yaml"]["compatible"] = list(compatible)


@pytest.mark.parametrize("wanted", [None, "tiny", "hermetic"])
def test_a_base_goes_by_name_alias_and_family(make_plan: MakePlan, small: Sample, wanted: str | None) -> None:
    vendor(small, compatible=("vendor",))
    assert make_plan(base=wanted).base == "tiny"
    assert make_plan(base="vendor").base == make_plan(base="vllm-openai").base == "vendor"


def test_on_a_registry_base_its_entrypoint_stays_and_its_digest_is_a_label(make_plan: MakePlan, small: Sample) -> None:
    vendor(small, compatible=("vendor",))
    plan = make_plan(base="vendor")
    assert (plan.entrypoint, plan.command) == (None, ("someone/tiny", "--port", "8000"))
    assert dict(plan.labels)["org.opencontainers.image.base.digest"] == "sha256:" + "a" * 64
    assert [layer.id for layer in plan.layers] == ["compiled", "placed", "settings", "entrypoint"]


Change = Callable[[dict[str, Any]], Any]
BAD: list[tuple[str, Change, dict[str, Any], ExitCode, str]] = [
    ("no such base", lambda f: None, {"base": "nowhere"}, ExitCode.USAGE, "there is no base 'nowhere'"),
    ("a base that does not fit", lambda f: None, {"base": "vendor"}, ExitCode.USAGE, "does not run on base 'vendor'"),
    ("another platform", lambda f: None, {"platform": "linux/amd64"}, ExitCode.USAGE, "not supported"),
    (
        "no such parameter",
        lambda f: None,
        {"sets": {"compiled": {"speed": "1"}}},
        ExitCode.USAGE,
        "no parameter 'speed'",
    ),
    (
        "no such version",
        lambda f: None,
        {"sets": {"compiled": {"version": "9"}}},
        ExitCode.USAGE,
        "'9' is not a usable",
    ),
    ("no such word", lambda f: None, {"sets": {"compiled": {"words": "$x"}}}, ExitCode.USAGE, "must match"),
    ("a layer that is not used", lambda f: None, {"sets": {"nccl": {"a": "b"}}}, ExitCode.USAGE, "does not have"),
    ("no such layer", lambda f: f["recipes/tiny.yaml"]["layers"].append("nope"), {}, ExitCode.USAGE, "no layer 'nope'"),
    (
        "a layer twice",
        lambda f: f["recipes/tiny.yaml"]["layers"].append("placed"),
        {},
        ExitCode.INVALID,
        "stands twice",
    ),
    (
        "too many layers",
        lambda f: [
            f.update({f"{LAYERS}/l{n}/layer.yaml": {"name": f"l{n}", "title": "t", "producer": "config"}})
            or f["recipes/tiny.yaml"]["layers"].append(f"l{n}")
            for n in range(MAX_LAYERS)
        ],
        {},
        ExitCode.USAGE,
        "47 layers; at most 40",
    ),
    (
        "a name that is another's",
        lambda f: f["recipes/tiny.yaml"].update(name="big"),
        {},
        ExitCode.INVALID,
        "says 'tiny'",
    ),
    ("no section", lambda f: f.pop("recipes/locks/tiny-wheels.json"), {}, ExitCode.PIN, "no section 'tiny-wheels'"),
    ("no sources", lambda f: f.pop("recipes/locks/sources.json"), {}, ExitCode.PIN, "no section 'sources'"),
    ("no toolchain", lambda f: f.pop("recipes/locks/toolchain-arm64.json"), {}, ExitCode.PIN, "'toolchain-arm64'"),
    (
        "a wheel that is not locked",
        lambda f: f["recipes/bases/tiny.yaml"]["layers"][1]["wheels"].update(only=["delta"]),
        {},
        ExitCode.PIN,
        "delta is not in the lock section tiny-wheels",
    ),
    (
        "wheels where packages belong",
        lambda f: f["recipes/bases/tiny.yaml"]["layers"][0]["root"].update(lock="tiny-wheels"),
        {},
        ExitCode.PIN,
        "does not hold Debian packages",
    ),
    (
        "a version that is not locked",
        lambda f: f["recipes/locks/sources.json"]["sources"].pop(0),
        {},
        ExitCode.PIN,
        "the lock has no source widget 1.0",
    ),
    ("no template", lambda f: f.pop(f"{LAYERS}/compiled/Dockerfile.j2"), {}, ExitCode.INVALID, "needs a Dockerfile.j2"),
    (
        "a path out of the tree",
        lambda f: f[f"{LAYERS}/placed/layer.yaml"]["files"][0].update(path="etc/../../x"),
        {},
        ExitCode.INVALID,
        "unsafe path",
    ),
    (
        "a group with a bad name",
        lambda f: f["recipes/bases/tiny.yaml"]["layers"][1]["wheels"].update(group="-" * 200),
        {},
        ExitCode.INVALID,
        "build stage",
    ),
    (
        "two files of one name",
        lambda f: f["recipes/locks/sources.json"]["sources"][0].update(file="alpha-1.0-py3-none-any.whl"),
        {},
        ExitCode.PIN,
        "two different files alpha-1.0-py3-none-any.whl",
    ),
]


@pytest.mark.parametrize(("change", "more", "code", "what"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_input_has_its_exit_code_and_says_what(
    make_plan: MakePlan, small: Sample, change: Change, more: dict[str, Any], code: ExitCode, what: str
) -> None:
    vendor(small)
    change(small.files)
    with pytest.raises(BuilderError) as caught:
        make_plan(**more)
    assert caught.value.code == code
    assert what in caught.value.what


def test_a_base_without_a_digest_cannot_be_built_on(make_plan: MakePlan, small: Sample) -> None:
    vendor(small, manifest=None, compatible=("vendor",))
    with pytest.raises(PinError, match="base vendor is not pinned"):
        make_plan(base="vendor")


@pytest.mark.parametrize("name", ["toolchain", "image", "scratch", "context", "1st"])
def test_a_layer_cannot_be_called_like_another_build_stage(make_plan: MakePlan, small: Sample, name: str) -> None:
    if name != "toolchain":
        small.files[f"{LAYERS}/{name}/layer.yaml"] = {"name": name, "title": "t", "producer": "config"}
    small.files["recipes/tiny.yaml"]["layers"].append(name)
    with pytest.raises((InvalidError, UsageError), match=f"{name}.* (cannot be the name|does not fit base)"):
        make_plan()


def test_what_the_command_line_sets() -> None:
    assert parse_sets(["a.b=c=d", "a.e=", "f.g=h"]) == {"a": {"b": "c=d", "e": ""}, "f": {"g": "h"}}
    for text in ("", "a", "a=b", "a.b", ".b=c", "a.=c"):
        with pytest.raises(UsageError, match=r"LAYER\.PARAMETER=VALUE"):
            parse_sets([text])


@pytest.mark.parametrize("name", ["", ".", "..", "../tiny", "a/b", "A", "x" * 300, "a\0b", "\udcff", "tin"])
def test_a_name_that_is_no_recipe(make_plan: MakePlan, small: Sample, tmp_path: Any, name: str) -> None:
    project = small.write(tmp_path / "other")
    with pytest.raises(UsageError, match="there is no recipe") as caught:
        project.recipe(name)
    assert caught.value.cause == ("did you mean tiny?" if name == "tin" else caught.value.cause)
    assert not Project((tmp_path,)).has_section(name)
