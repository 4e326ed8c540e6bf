"""plan.resolve: the plan of a recipe, a base and the lock, and the errors of invalid input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builder.errors import BuilderError, InvalidError, PinError, UsageError
from builder.model.plan import Plan
from builder.plan.resolve import MAX_LAYERS, parse_sets, resolve
from builder.project import Project
from tests.support.errors import fails
from tests.support.limits import ends
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


def test_labels_hold_title_base_and_the_layers_labels(make_plan: MakePlan) -> None:
    labels = dict(make_plan().labels)
    assert labels["org.opencontainers.image.title"] == "tiny"
    assert labels["org.builder.base"] == "tiny"
    assert labels["org.example.widget"] == "1.0"
    assert "org.opencontainers.image.base.name" not in labels


def test_recipes_with_the_same_layers_share_them(make_project: Callable[..., Project], small: Sample) -> None:
    tiny = small.files["recipes/tiny.yaml"]
    small.files["recipes/same.yaml"] = {**tiny, "name": "same", "env": {"LAST": "other"}}
    small.files["recipes/fewer.yaml"] = {**tiny, "name": "fewer", "layers": tiny["layers"][1:]}
    project = make_project(small.files)
    first, same, fewer = (resolve(project, project.recipe(name)) for name in ("tiny", "same", "fewer"))
    assert same.layers is first.layers
    assert [item.value for item in same.env] != [item.value for item in first.env]
    assert [layer.id for layer in fewer.layers] == [layer.id for layer in first.layers if layer.id != "compiled"]
    for sets in ({"compiled": {"version": "2.0"}}, {"compiled": {"words": "one"}}):
        other = resolve(project, project.recipe("tiny"), sets=sets)
        assert [layer.id for layer in other.layers if layer not in first.layers] == ["compiled"]


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
def test_a_base_is_selected_by_name_alias_or_family(make_plan: MakePlan, small: Sample, wanted: str | None) -> None:
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
BAD: list[tuple[str, Change, dict[str, Any], type[BuilderError], str]] = [
    ("no such base", lambda f: None, {"base": "nowhere"}, UsageError, "name-unknown"),
    ("a base that does not fit", lambda f: None, {"base": "vendor"}, UsageError, "base-not-compatible"),
    ("another platform", lambda f: None, {"platform": "linux/amd64"}, UsageError, "platform-unsupported"),
    (
        "no such parameter",
        lambda f: None,
        {"sets": {"compiled": {"speed": "1"}}},
        UsageError,
        "parameter-unknown",
    ),
    (
        "no such version",
        lambda f: None,
        {"sets": {"compiled": {"version": "9"}}},
        UsageError,
        "parameter-value-invalid",
    ),
    ("no such word", lambda f: None, {"sets": {"compiled": {"words": "$x"}}}, UsageError, "parameter-value-invalid"),
    ("a layer that is not used", lambda f: None, {"sets": {"nccl": {"a": "b"}}}, UsageError, "set-layer-unknown"),
    ("no such layer", lambda f: f["recipes/tiny.yaml"]["layers"].append("nope"), {}, InvalidError, "layer-unknown"),
    (
        "a layer twice",
        lambda f: f["recipes/tiny.yaml"]["layers"].append("placed"),
        {},
        InvalidError,
        "layer-used-twice",
    ),
    (
        "too many layers",
        lambda f: [
            f.update({f"{LAYERS}/l{n}/layer.yaml": {"name": f"l{n}", "title": "t", "producer": "config"}})
            or f["recipes/tiny.yaml"]["layers"].append(f"l{n}")
            for n in range(MAX_LAYERS)
        ],
        {},
        UsageError,
        "layers-too-many",
    ),
    (
        "a name that is another's",
        lambda f: f["recipes/tiny.yaml"].update(name="big"),
        {},
        InvalidError,
        "file-name-mismatch",
    ),
    ("no section", lambda f: f.pop("recipes/locks/tiny-wheels.json"), {}, PinError, "lock-section-missing"),
    ("no sources", lambda f: f.pop("recipes/locks/sources.json"), {}, PinError, "source-not-locked"),
    ("no toolchain", lambda f: f.pop("recipes/locks/toolchain-arm64.json"), {}, PinError, "lock-section-missing"),
    (
        "a wheel that is not locked",
        lambda f: f["recipes/bases/tiny.yaml"]["layers"][1]["wheels"].update(only=["delta"]),
        {},
        PinError,
        "wheel-not-locked",
    ),
    (
        "wheels where packages belong",
        lambda f: f["recipes/bases/tiny.yaml"]["layers"][0]["root"].update(lock="tiny-wheels"),
        {},
        PinError,
        "lock-section-kind",
    ),
    (
        "a version that is not locked",
        lambda f: f["recipes/locks/sources.json"]["sources"].pop(0),
        {},
        PinError,
        "source-not-locked",
    ),
    ("no template", lambda f: f.pop(f"{LAYERS}/compiled/Dockerfile.j2"), {}, InvalidError, "layer-template-missing"),
    (
        "a path out of the tree",
        lambda f: f[f"{LAYERS}/placed/layer.yaml"]["files"][0].update(path="etc/../../x"),
        {},
        InvalidError,
        "layer-path-unsafe",
    ),
    (
        "a group with a bad name",
        lambda f: f["recipes/bases/tiny.yaml"]["layers"][1]["wheels"].update(group="-" * 200),
        {},
        InvalidError,
        "layer-id-invalid",
    ),
    (
        "two files of one name",
        lambda f: f["recipes/locks/sources.json"]["sources"][0].update(file="alpha-1.0-py3-none-any.whl"),
        {},
        PinError,
        "lock-file-ambiguous",
    ),
]


@pytest.mark.parametrize(("change", "more", "kind", "id"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_input_is_refused(
    make_plan: MakePlan, small: Sample, change: Change, more: dict[str, Any], kind: type[BuilderError], id: str
) -> None:
    vendor(small)
    change(small.files)
    with fails(kind, id):
        make_plan(**more)


def test_a_base_without_a_digest_cannot_be_built_on(make_plan: MakePlan, small: Sample) -> None:
    vendor(small, manifest=None, compatible=("vendor",))
    with fails(PinError, "base-not-pinned"):
        make_plan(base="vendor")


@pytest.mark.parametrize("name", ["toolchain", "image", "scratch", "context", "1st"])
def test_a_layer_cannot_be_called_like_another_build_stage(make_plan: MakePlan, small: Sample, name: str) -> None:
    if name != "toolchain":
        small.files[f"{LAYERS}/{name}/layer.yaml"] = {"name": name, "title": "t", "producer": "config"}
    small.files["recipes/tiny.yaml"]["layers"].append(name)
    with pytest.raises((InvalidError, UsageError)) as caught:
        make_plan()
    assert caught.value.id == ("layer-family-wrong" if name == "toolchain" else "layer-id-invalid")


def test_parse_sets_reads_layer_parameter_and_value() -> None:
    assert parse_sets(["a.b=c=d", "a.e=", "f.g=h"]) == {"a": {"b": "c=d", "e": ""}, "f": {"g": "h"}}
    for text in ("", "a", "a=b", "a.b", ".b=c", "a.=c"):
        with fails(UsageError, "set-malformed"):
            parse_sets([text])


@pytest.mark.parametrize("name", ["", ".", "..", "../tiny", "a/b", "A", "x" * 300, "a\0b", "\udcff", "tin"])
def test_an_unknown_recipe_is_refused_whatever_its_name(
    make_plan: MakePlan, small: Sample, tmp_path: Any, name: str
) -> None:
    project = small.write(tmp_path / "other")
    with fails(UsageError, "name-unknown") as caught:
        project.recipe(name)
    assert name != "tin" or caught.value.cause == "did you mean tiny?"
    assert not Project((tmp_path,)).has_section(name)


def test_a_file_that_is_placed_many_times_is_refused_before_it_fills_the_memory(
    make_plan: MakePlan, small: Sample
) -> None:
    small.files[f"{LAYERS}/placed/big"] = "x" * (3 << 20)
    files = [{"path": f"/opt/placed/{number}", "source": "big"} for number in range(500)]
    small.files[f"{LAYERS}/placed/layer.yaml"]["files"] = files

    def work() -> None:
        with fails(InvalidError, "layer-files-too-large"):
            make_plan()

    ends(work, memory=300 << 20)


def test_folders_of_layers_are_bounded_together(make_plan: MakePlan, small: Sample, tmp_path: Path) -> None:
    for number in range(20):
        name = f"big{number}"
        small.files[f"{LAYERS}/{name}/layer.yaml"] = {"name": name, "title": "x", "producer": "config"}
    project = small.write(tmp_path / "project")
    for number in range(20):
        with (tmp_path / "project" / LAYERS / f"big{number}" / "zeros").open("wb") as file:
            file.truncate(30 << 20)

    def work() -> None:
        with fails(InvalidError, "layer-folder-too-large"):
            for name in project.layer_names():
                project.layer(name)

    ends(work, memory=300 << 20)


def test_a_text_does_not_grow_without_bound(make_plan: MakePlan, small: Sample) -> None:
    layer = small.files[f"{LAYERS}/settings/layer.yaml"]
    long = {"type": "text", "pattern": "x*", "default": "x" * 4000, "help": "text"}
    layer["parameters"] = {**layer.get("parameters", {}), "long": long}
    layer["env"] = [{"name": "A", "value": "{{ params.long }}" * 200}]
    with fails(InvalidError, "template-too-long"):
        make_plan()
