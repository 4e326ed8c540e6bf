"""The bundle: a plan as one canonical document, without loss, and refused when a part of it is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from builder.errors import BuilderError, InvalidError
from builder.model.canonical import canonical
from builder.model.plan import Plan, PlannedLayer
from builder.plan.bundle import LIMIT, _layer_problems, read_bundle, write_bundle
from builder.plan.resolve import resolve
from builder.project import Project
from tests.support.errors import fails
from tests.support.fixtures import MakePlan
from tests.support.limits import ends
from tests.support.nightly import NIGHTLY
from tests.support.project import ROOT, Sample, vendor_base


def test_a_plan_that_makes_no_layer_needs_no_toolchain(make_plan: MakePlan, small: Sample) -> None:
    both = make_plan().toolchains
    small.files["recipes/bases/vendor.yaml"] = vendor_base("registry.example/vllm:1", "sha256:" + "a" * 64)
    small.files["recipes/tiny.yaml"] |= {"compatible": ["vendor"], "layers": ["settings", "entrypoint"]}
    plan = make_plan(base="vendor")
    bundle = write_bundle(plan)
    assert read_bundle(bundle, "here") == plan and len(bundle) < 10_000
    more = replace(plan, toolchains=both)
    assert read_bundle(write_bundle(more), "here") == more
    assert more.key == plan.key


@pytest.mark.parametrize("name", ["nemotron-omni", "qwen3.5-122b-fp8-dual", "gpt-oss-120b"])
def test_a_shipped_plan_comes_back(name: str) -> None:
    project = Project((ROOT,))
    plan = resolve(project, project.recipe(name), base="hermetic")
    bundle = write_bundle(plan)
    again = read_bundle(bundle, "here")
    assert again == plan
    assert again.key == plan.key
    assert len(bundle) < LIMIT / 10


def test_a_plan_on_a_pinned_base_comes_back() -> None:
    project = Project((ROOT,))
    for name, base in project.bases.items():
        if base.pin is not None and base.pin.manifest is not None and base.family == "vllm-openai":
            recipe = next(r for r in map(project.recipe, project.recipe_names()) if name in (r.base, *r.compatible))
            plan = resolve(project, recipe, base=name)
            assert read_bundle(write_bundle(plan), "here") == plan
            return
    pytest.skip("no base is pinned")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value in a document."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value[:3]):
            yield from places(item, (*path, number))


def changed(document: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> bytes:
    """The document with one value changed; change: gets the container and the key."""
    copy = json.loads(json.dumps(document))
    parent = copy
    for key in path[:-1]:
        parent = parent[key]
    change(parent, path[-1])
    return canonical(copy)


def put(value: Any) -> Callable[[Any, Any], None]:
    return lambda parent, key: parent.__setitem__(key, value)


VALUES: tuple[Any, ...] = (None, 7, "../../etc/x", "a\nb", [], {}, ["x"], {"x": 1}, True, "0" * 64)


def test_no_change_is_accepted_in_silence(make_plan: MakePlan) -> None:
    """A change of any value is refused, or gives another plan: never the same, and never a traceback."""
    plan = make_plan()
    document = json.loads(write_bundle(plan))
    refused = 0
    for number, path in enumerate(places(document)):
        if not path:
            continue
        # Each place gets some of the values, and each value comes to some of the places of a kind.
        for value in VALUES if NIGHTLY else (VALUES[(number + step) % len(VALUES)] for step in (0, 3)):
            data = changed(document, path, put(value))
            if data == write_bundle(plan):
                continue
            try:
                other = read_bundle(data, "here")
            except BuilderError as error:
                assert error.code == 3, error
                refused += 1
            else:
                assert other != plan
                assert write_bundle(other) == data
    assert refused > (2000 if NIGHTLY else 400)


def test_what_decides_a_layers_bytes_is_in_its_key(make_plan: MakePlan) -> None:
    document = json.loads(write_bundle(make_plan()))
    for path in places(document["plan"]["layers"], ("plan", "layers")):
        if len(path) < 4 or path[3] not in ("spec", "dockerfile", "context", "key", "producer", "toolchain"):
            continue
        value = document
        for key in path:
            value = value[key]
        if isinstance(value, str) and value:
            with pytest.raises(InvalidError):
                read_bundle(changed(document, path, put(f"{value}0")), "here")
        elif isinstance(value, bool):
            with pytest.raises(InvalidError):
                read_bundle(changed(document, path, put(not value)), "here")


@pytest.mark.parametrize(
    ("data", "id"),
    [
        (b"", "bundle-invalid"),
        (b"[]", "bundle-invalid"),
        (b'{"bundle":1}', "bundle-invalid"),
        (b'{"bundle":2,"plan":{}}', "bundle-version-unknown"),
        (b'{"bundle":true,"plan":{}}', "bundle-version-unknown"),
        (b'{"bundle":1,"bundle":1,"plan":{}}', "bundle-invalid"),
        (b"[" * 100_000, "bundle-invalid"),
        (b'{"bundle":1,"plan":"\\ud800"}', "bundle-invalid"),
        (b"\xff\xfe", "bundle-invalid"),
        (b" " * (LIMIT + 1), "bundle-invalid"),
    ],
    ids=["empty", "list", "no plan", "version", "true", "twice", "deep", "surrogate", "bytes", "large"],
)
def test_no_bundle(data: bytes, id: str) -> None:
    with fails(InvalidError, id):
        read_bundle(data, "here")


def test_another_spelling_is_refused(make_plan: MakePlan) -> None:
    bundle = write_bundle(make_plan())
    with fails(InvalidError, "bundle-invalid"):
        read_bundle(json.dumps(json.loads(bundle)).encode(), "here")


def test_a_dockerfile_that_reads_what_is_not_locked(make_plan: MakePlan) -> None:
    document = json.loads(write_bundle(make_plan()))
    (layer,) = (layer for layer in document["plan"]["layers"] if layer["producer"] == "dockerfile")
    stages = "FROM docker.io/library/debian\nRUN true\n"
    layer |= {"stages": stages, "dockerfile": stages}
    with fails(InvalidError, "dockerfile-forbidden"):
        read_bundle(canonical(document), "here")


def test_equal_plans_have_equal_bundles(make_plan: MakePlan) -> None:
    first: Plan = make_plan()
    assert write_bundle(first) == write_bundle(make_plan())
    assert write_bundle(first) != write_bundle(make_plan(sets={"compiled": {"version": "2.0"}}))


@pytest.mark.parametrize(
    "context",
    [
        {"layers/compiled/a": "", "layers/compiled/a/b": ""},
        {"layers/compiled/" + "a" * 256: ""},
        {"layers/other/a": ""},
        {"layers/compiled/../a": ""},
        {"inputs/a": ""},
    ],
    ids=["file and folder", "long name", "other folder", "parent", "inputs"],
)
def test_files_of_a_layer_that_cannot_be_written(make_plan: MakePlan, context: dict[str, str]) -> None:
    document = json.loads(write_bundle(make_plan()))
    (layer,) = (layer for layer in document["plan"]["layers"] if layer["producer"] == "dockerfile")
    layer["context"] = context
    with fails(InvalidError, "bundle-invalid") as caught:
        read_bundle(canonical(document), "here")
    assert "has the key" not in caught.value.what


def test_a_layer_with_the_name_of_a_toolchain(make_plan: MakePlan) -> None:
    document = json.loads(write_bundle(make_plan()))
    document["plan"]["layers"][0]["id"] = "toolchain-amd64"
    with fails(InvalidError, "bundle-invalid") as caught:
        read_bundle(canonical(document), "here")
    assert "same id" in caught.value.what


@pytest.mark.parametrize(
    "change",
    [{"id": "compiled-build"}, {"id": "toolchain", "root": True}, {"root": True}],
    ids=["stage", "other", "root"],
)
def test_what_decides_a_layers_bytes_besides_its_key(make_plan: MakePlan, change: dict[str, Any]) -> None:
    """The engine exports the stage that is named like the layer, and a root may hold any paths: neither is in a key.

    So another stage of the same Dockerfile would be kept under the key of the layer, for all projects of the store.
    """
    document = json.loads(write_bundle(make_plan()))
    (layer,) = (layer for layer in document["plan"]["layers"] if layer["producer"] == "dockerfile")
    assert "AS compiled-build" in layer["dockerfile"]
    layer |= change
    with pytest.raises(InvalidError) as caught:
        read_bundle(canonical(document), "here")
    assert caught.value.id in ("bundle-invalid", "dockerfile-forbidden") and "has the key" not in caught.value.what


def test_deep_paths_of_context_files_take_little_memory() -> None:
    """Each of their folders was kept: a bundle of 4 MiB took as many gigabytes."""
    paths = [f"layers/x/{number}/" + "a/" * 2000 + "b" for number in range(150)]
    layer = PlannedLayer("x", "x", "", "dockerfile", False, "", {}, dockerfile="", context=dict.fromkeys(paths, b""))
    ends(lambda: list(_layer_problems(layer)), 200 << 20)
    both = replace(layer, context={"layers/x/a/b": b"", "layers/x/a": b""})
    assert any("as a file and as a folder" in problem for problem in _layer_problems(both))
