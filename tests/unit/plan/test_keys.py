"""Layer keys: equal on every machine and for every engine; only the inputs of a layer's bytes change its key."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builder.model.plan import Plan
from builder.oci import format as blobs
from builder.plan.resolve import resolve
from builder.unpack import tree
from tests.support.project import Sample, hashed, root_packages, vendor_base
from tests.support.wheels import wheel

Change = Callable[[Sample], None]


@pytest.fixture
def keys(tmp_path: Path, small: Sample) -> Callable[..., dict[str, str]]:
    """The keys of the small project after a change, toolchains included."""
    count = iter(range(100))

    def made(change: Change = lambda sample: None, **more: Any) -> dict[str, str]:
        changed = copy.deepcopy(small)
        change(changed)
        project = changed.write(tmp_path / f"project-{next(count)}")
        plan = resolve(project, project.recipe("tiny"), **more)
        return {layer.id: layer.key for layer in (*plan.layers, *plan.toolchains)}

    return made


def differing(one: dict[str, str], other: dict[str, str]) -> set[str]:
    assert one.keys() == other.keys()
    return {name for name in one if one[name] != other[name]}


def test_every_layer_with_files_has_a_key_of_its_own(keys: Callable[..., dict[str, str]]) -> None:
    made = keys()
    filled = [key for name, key in made.items() if name not in ("settings", "entrypoint")]
    assert all(re.fullmatch("[0-9a-f]{64}", key) for key in filled)
    assert len(set(filled)) == len(filled) == 7
    assert made["settings"] == made["entrypoint"] == ""


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
def test_the_build_platform_is_not_in_a_key(
    keys: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    before = keys()
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert keys() == before


def test_engine_store_jobs_and_network_are_not_in_a_key(
    keys: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = keys()
    for name in ("BUILDER_ENGINE", "BUILDER_STORE", "HOME", "TZ", "LANG", "UV_DEFAULT_INDEX", "http_proxy"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert keys() == before


def change_wheel(name: str) -> Change:
    def change(small: Sample) -> None:
        for item in small.files["recipes/locks/tiny-wheels.json"]["wheels"]:
            if item["name"] == name:
                item |= hashed(b"other bytes")

    return change


@pytest.mark.parametrize(
    ("name", "changed"), [("alpha", {"wheels-alpha"}), ("beta", {"wheels-other"}), ("gamma", {"wheels-other"})]
)
def test_one_wheel_changes_the_keys_of_the_layers_that_hold_it(
    keys: Callable[..., dict[str, str]], name: str, changed: set[str]
) -> None:
    assert differing(keys(), keys(change_wheel(name))) == changed


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_a_toolchain_changes_the_keys_of_compiled_layers_only(
    keys: Callable[..., dict[str, str]], architecture: str
) -> None:
    def change(small: Sample) -> None:
        section = f"toolchain-{architecture}"
        small.add_debs(section, root_packages(make={"usr/bin/make": "a newer one"}), architecture)

    assert differing(keys(), keys(change)) == {f"toolchain-{architecture}", "compiled"}


def write(path: str, content: Any) -> Change:
    def change(small: Sample) -> None:
        assert path not in small.files or small.files[path] != content
        small.files[path] = content

    return change


def edit(path: str, *where: Any, value: Any) -> Change:
    def change(small: Sample) -> None:
        node = small.files[path]
        for part in where[:-1]:
            node = node[part]
        node[where[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (write("dockerfiles/layers/compiled/patch.diff", "another patch\n"), {"compiled"}),
        (write("dockerfiles/layers/compiled/new.sh", "x"), {"compiled"}),
        (edit("dockerfiles/layers/compiled/layer.yaml", "title", value="Other words"), set()),
        (edit("dockerfiles/layers/compiled/layer.yaml", "env", value=[]), set()),
        (edit("dockerfiles/layers/placed/layer.yaml", "files", 0, "content", value="x"), {"placed"}),
        (edit("dockerfiles/layers/placed/layer.yaml", "files", 0, "mode", value="0755"), {"placed"}),
        (edit("dockerfiles/layers/placed/layer.yaml", "files", 1, "link", value="/x"), {"placed"}),
        (edit("dockerfiles/layers/settings/layer.yaml", "env", 0, "value", value="x"), set()),
        (edit("recipes/tiny.yaml", "env", value={"A": "b"}), set()),
        (edit("recipes/tiny.yaml", "serve", "flags", value={"port": 9000}), set()),
        (edit("recipes/locks/tiny-wheels.json", "locked", value="2026-02-03T04:05:06Z"), set()),
        (edit("recipes/locks/tiny-root.json", "packages", 1, "version", value="2"), set()),
        (edit("recipes/locks/tiny-root.json", "packages", 1, "sha256", value="0" * 64), {"root"}),
    ],
    ids=lambda value: "" if callable(value) else ",".join(sorted(value)) or "nothing",
)
def test_only_inputs_of_the_bytes_change_a_key(
    keys: Callable[..., dict[str, str]], change: Change, changed: set[str]
) -> None:
    assert differing(keys(), keys(change)) == changed


def test_the_order_of_packages_counts(keys: Callable[..., dict[str, str]]) -> None:
    def change(small: Sample) -> None:
        small.files["recipes/locks/tiny-root.json"]["packages"].reverse()

    assert differing(keys(), keys(change)) == {"root"}


def test_parameters_change_the_layer_they_are_of(keys: Callable[..., dict[str, str]]) -> None:
    assert differing(keys(), keys(sets={"compiled": {"words": "inference"}})) == {"compiled"}
    assert differing(keys(), keys(sets={"compiled": {"version": "2.0"}})) == {"compiled"}
    assert differing(keys(), keys(sets={"compiled": {"version": "1.0", "words": "all"}})) == set()


def test_compression_changes_every_layer_of_the_image(keys: Callable[..., dict[str, str]]) -> None:
    image = {"root", "wheels-alpha", "wheels-other", "compiled", "placed"}
    assert differing(keys(), keys(compression="gzip")) == image


@pytest.mark.parametrize(
    ("module", "name", "value"), [(blobs, "MTIME", 0), (blobs, "NORMALISER", 99), (blobs, "LEVEL", 19)]
)
def test_how_blobs_are_written_is_in_every_key(
    keys: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch, module: Any, name: str, value: int
) -> None:
    before = keys()
    monkeypatch.setattr(module, name, value)
    assert {"root", "wheels-alpha", "compiled", "placed"} <= differing(before, keys())


def test_the_version_of_the_unpacker_is_in_the_keys_of_what_it_unpacks(
    keys: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tree.__name__.startswith("builder.unpack")
    before = keys()
    monkeypatch.setattr("builder.plan.keys.FORMAT", 99)
    assert {"root", "wheels-alpha", "placed"} <= differing(before, keys())


def test_a_layer_that_reads_the_base_has_the_base_in_its_key(tmp_path: Path, small: Sample) -> None:
    def plan(reads_base: bool, manifest: str) -> Plan:
        changed = copy.deepcopy(small)
        changed.files["dockerfiles/layers/compiled/layer.yaml"]["reads_base"] = reads_base
        changed.files["recipes/bases/vendor.yaml"] = vendor_base("registry.example/a/b:1", f"sha256:{manifest * 64}")
        changed.files["recipes/tiny.yaml"]["compatible"] = ["vendor"]
        project = changed.write(tmp_path / f"{reads_base}{manifest}")
        return resolve(project, project.recipe("tiny"), base="vendor")

    def key(reads_base: bool, manifest: str) -> str:
        return next(layer.key for layer in plan(reads_base, manifest).layers if layer.id == "compiled")

    assert key(False, "a") == key(False, "b")
    assert len({key(False, "a"), key(True, "a"), key(True, "b")}) == 3


def test_the_image_key_covers_configuration(tmp_path: Path, small: Sample) -> None:
    def key(name: str, change: Change) -> str:
        changed = copy.deepcopy(small)
        change(changed)
        project = changed.write(tmp_path / name)
        return resolve(project, project.recipe("tiny")).key

    same = key("a", lambda sample: None)
    assert key("b", lambda sample: None) == same
    names = ("alpha", "beta", "gamma")
    others = [
        key("c", edit("recipes/tiny.yaml", "env", value={"A": "b"})),
        key("d", edit("recipes/tiny.yaml", "serve", "flags", value={"port": 9000})),
        key("e", edit("recipes/tiny.yaml", "title", value="Other")),
        key("f", edit("dockerfiles/layers/settings/layer.yaml", "env", 0, "mode", value="set")),
        key("g", edit("dockerfiles/layers/compiled/layer.yaml", "labels", value=[])),
        key("h", lambda sample: sample.add_wheels("tiny-wheels", {name: wheel(name, {}) for name in names})),
    ]
    assert len({same, *others}) == 7
