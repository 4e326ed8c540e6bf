"""Every model is frozen, refuses keys that it does not know, and bounds the text that may reach an image."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from builder.digest import Digest
from builder.model import base, check, common, layer, lock, recipe


def models() -> Iterator[type[BaseModel]]:
    for module in (base, check, layer, lock, recipe):
        for _, found in inspect.getmembers(module, inspect.isclass):
            if issubclass(found, BaseModel) and found.__module__ == module.__name__:
                yield found


@pytest.mark.parametrize("model", [*models()], ids=lambda model: model.__name__)
def test_every_model_refuses_unknown_keys_and_changes(model: type[BaseModel]) -> None:
    assert issubclass(model, common.Strict)
    assert model.model_config["frozen"] is True
    with pytest.raises(ValidationError) as caught:
        model.model_validate({"no_such_key": 1, "nor_this": 2})
    refused = {error["loc"][-1] for error in caught.value.errors() if error["type"] == "extra_forbidden"}
    assert refused == {"no_such_key", "nor_this"}


def test_the_list_of_models_is_complete() -> None:
    names = {model.__name__ for model in models()}
    assert {"Recipe", "Base", "Layer", "DebLock", "WheelLock", "SourceLock", "LockRequests", "Check"} <= names


def test_a_value_cannot_be_changed() -> None:
    made = check.Check(id="a", tier="static", kind="file")
    with pytest.raises(ValidationError, match="frozen"):
        made.id = "b"  # type: ignore[misc]


BAD: dict[str, tuple[Any, list[Any]]] = {
    "Name": (common.Name, ["", "A", "-a", "a/b", "a b", "a\n", "ä", "a" * 65, "$(x)"]),
    "ParameterName": (common.ParameterName, ["", "1a", "a-b", "A", "a\n"]),
    "EnvName": (common.EnvName, ["", "1A", "A-B", "A=B", "A B", "A\n", "Ä"]),
    "Flag": (common.Flag, ["", "-a", "--a", "a_b", "a=b", "a\n"]),
    "LabelName": (common.LabelName, ["", "A", "a b", "a=b", "a\n", ".a"]),
    "Line": (common.Line, ["a\nb", "a\rb", "a\0b", "a\x1bb", "a\x7fb", "x" * 4097, 5, None]),
    "Digest": (Digest, ["sha256:" + "0" * 63, "sha256:" + "G" * 64, "0" * 64, "sha256:" + "0" * 64 + "\n"]),
    "Version": (common.Version, ["", "-1", "1 2", "1/2", "1\n", "$(x)"]),
    "FileName": (common.FileName, ["", ".", "..", ".a", "a/b", "a\n", "-a", "a b"]),
    "ImagePath": (common.ImagePath, ["", "a", "/a\nb", "/a\0", "/a\x9b", "/a\u202e"]),
    "Requirement": (
        lock.Requirement,
        ["-r x", "a @ https://example.org/${TOKEN}/a.whl", "https://example.org/a.whl", "a/", "a @ file:///a", "a \\"],
    ),
    "FlagValue": (recipe.FlagValue, [{"a": "\x9b"}, {"a": [{"b\u202e": 1}]}, {"a": "\ud800"}, {"a": {1: 2}}]),
    "RelativePath": (common.RelativePath, ["", "/a", "a//b", "a/../b", "..", "./a", "a/", "a\nb"]),
    "Timestamp": (common.Timestamp, ["2026-01-01", "2026-01-01T00:00:00", "2026-01-01T00:00:00Z\n"]),
    "Scalar": (common.Scalar, [float("nan"), float("inf"), None, [], {}, "a\nb"]),
}


@pytest.mark.parametrize("name", BAD)
def test_text_types_refuse_ambiguous_values(name: str) -> None:
    kind, values = BAD[name]
    adapter = TypeAdapter(kind)
    for value in values:
        with pytest.raises(ValidationError):
            adapter.validate_python(value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (common.Name, "vllm-openai-0.20"),
        (common.EnvName, "LD_LIBRARY_PATH"),
        (common.LabelName, "org.opencontainers.image.title"),
        (common.Line, 'any "text" with $signs, `ticks`, \\ and umläuts'),
        (common.Version, "1:2.28.9-1+cuda13.0~rc1"),
        (common.FileName, "torch-2.11.0+cu130-cp313-cp313-manylinux_2_28_aarch64.whl"),
        (common.RelativePath, "pool/main/g/gcc-12/gcc.deb"),
    ],
)
def test_text_types_accept_common_values(kind: Any, value: str) -> None:
    assert TypeAdapter(kind).validate_python(value) == value


HERMETIC = {"name": "b", "family": "hermetic", "title": "t", "entrypoint": "pass-through"}
PIN = {"image": "registry.example/a/b:1"}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (HERMETIC, "needs a stack, or layers"),
        ({**HERMETIC, "layers": ["root"], "pin": PIN}, "has no registry pin"),
        ({**HERMETIC, "family": "ngc"}, "needs a pin"),
        ({**HERMETIC, "family": "ngc", "pin": PIN, "layers": ["root"]}, "only a hermetic base"),
        ({**HERMETIC, "family": "ngc", "pin": PIN, "env": {"A": "b"}}, "only a hermetic base"),
    ],
)
def test_a_base_fits_its_family(data: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        base.Base.model_validate(data)


LAYER = {"name": "l", "title": "t", "producer": "files"}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, "needs debs, wheels, patches or files"),
        ({"producer": "config", "files": [{"path": "a", "link": "b"}]}, "adds no file"),
        ({"inputs": {"debs": "x", "toolchain": True}}, "only a dockerfile layer"),
        ({"inputs": {"debs": "x", "sources": ["a/1"]}}, "only a dockerfile layer"),
        ({"producer": "dockerfile", "root": True}, "made of Debian packages"),
        ({"files": [{"path": "a"}]}, "exactly one of"),
        ({"files": [{"path": "a", "link": "b", "content": "c"}]}, "exactly one of"),
        ({"files": [{"path": "a", "content": "c", "mode": "755"}]}, "pattern"),
        ({"parameters": {"p": {"type": "text", "help": "h"}}}, "needs choices or a pattern"),
        ({"parameters": {"p": {"type": "text", "pattern": "(", "help": "h"}}}, "not a pattern of RE2"),
    ],
)
def test_a_layer_fits_its_producer(more: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        layer.Layer.model_validate({**LAYER, **more})
