"""The JSON schemas: committed as generated, named by every shipped file, and in agreement with the models."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from builder.model import schema
from builder.model.recipe import Recipe
from builder.model.yamlfile import parse_yaml

ROOT = Path(__file__).resolve().parents[3]
YAML = sorted([*ROOT.glob("recipes/*.yaml"), *ROOT.glob("recipes/*/*.yaml"), *ROOT.glob("dockerfiles/layers/*/*.yaml")])
LOCKS = sorted(ROOT.glob("recipes/locks/*.json"))


@cache
def generated() -> dict[str, dict[str, Any]]:
    return schema.schemas()


@cache
def validator(name: str) -> Draft202012Validator:
    made = generated()[name]
    Draft202012Validator.check_schema(made)
    return Draft202012Validator(made)


def problems(name: str, data: Any) -> list[str]:
    return [error.message for error in validator(name).iter_errors(data)]


@pytest.mark.parametrize("name", ["recipe", "profile", "base", "family", "layer", "lock", "requests"])
def test_committed_is_generated(name: str) -> None:
    committed = (schema.FOLDER / f"{name}.json").read_text("utf-8")
    assert committed == schema.text(generated()[name]), "run: python -m builder.model.schema"


def test_the_writer_writes_every_schema_and_no_other_is_committed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "builder.model.schema", str(tmp_path)], check=True, cwd=ROOT)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_bytes() for path in schema.FOLDER.iterdir()}


@pytest.mark.parametrize("path", YAML, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_shipped_file_names_its_schema_and_fits_it(path: Path) -> None:
    text = path.read_text("utf-8")
    named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
    assert named, "the first line names the schema, for editors"
    found = (path.parent / named[1]).resolve()
    assert found.parent == schema.FOLDER
    assert problems(found.stem, parse_yaml(text, str(path))) == []


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_a_shipped_lock_section_fits_the_schema(path: Path) -> None:
    assert problems("lock", json.loads(path.read_text("utf-8"))) == []


def test_shipped_files_are_found() -> None:
    assert len(YAML) > 10
    assert len(LOCKS) > 5


def recipe(**more: Any) -> dict[str, Any]:
    made = {"name": "a", "title": "t", "model": {"id": "x/y"}, "base": "b", "serve": {"model": "x/y"}}
    return {**made, **more}


@pytest.mark.parametrize(
    "use",
    ["nccl", {"nccl": {}}, {"nccl": None}, {"nccl": {"functions": "all"}}, {"layer": "nccl", "set": {"a": ["b"]}}],
)
def test_every_form_of_a_layer_use_fits(use: Any) -> None:
    assert Recipe.model_validate(recipe(layers=[use])).layers[0].layer == "nccl"
    assert problems("recipe", recipe(layers=[use])) == []


@pytest.mark.parametrize(
    "data",
    [
        recipe(tilte="t"),
        recipe(layers=["No"]),
        recipe(layers=[{"a": {}, "b": {}}]),
        recipe(layers=[{"a": {"X": 1}}]),
        recipe(layers=[{"layer": {}}]),
        recipe(env={"1A": "b"}),
        recipe(nodes=3),
        {"name": "a"},
    ],
)
def test_the_schema_refuses_invalid_values(data: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Recipe.model_validate(data)
    assert problems("recipe", data)


def test_every_property_has_a_description() -> None:
    def missing(node: Any, where: str) -> list[str]:
        found = []
        if isinstance(node, dict):
            named = node.get("properties") if isinstance(node.get("properties"), dict) else {}
            found = [
                f"{where}.{key}" for key, value in named.items() if value is not False and not value.get("description")
            ]
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        return found + [each for key, item in items for each in missing(item, f"{where}.{key}")]

    assert missing(generated(), "") == []


def test_no_description_is_of_a_key_that_is_gone() -> None:
    models: dict[str, set[str]] = {}

    def collect(node: Any) -> None:
        if isinstance(node, dict) and isinstance(node.get("properties"), dict):
            models.setdefault(str(node.get("title")), set()).update(node["properties"])
        for item in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            collect(item)

    collect(generated())
    texts = parse_yaml(schema.DESCRIPTIONS.read_text("utf-8"), "descriptions")
    shared = set(texts.pop("any"))
    assert not {(model, key) for model, keys in texts.items() for key in keys} - {
        (m, k) for m, ks in models.items() for k in ks
    }
    assert not shared - set().union(*models.values())
