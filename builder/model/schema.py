"""JSON schemas of the YAML and JSON files, for editors and other tools: `python -m builder.model.schema` writes them.

A schema cannot hold all checks of a model (references between keys, control characters); loading a file makes them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from builder.model.base import Base
from builder.model.layer import Layer
from builder.model.lock import LockRequests, LockSection
from builder.model.recipe import Profile, Recipe
from builder.model.yamlfile import parse_yaml

FOLDER = Path(__file__).resolve().parents[1] / "schemas"

DESCRIPTIONS = Path(__file__).with_name("descriptions.yaml")
_LIKE = {"LayerCheck": "Check", "Family": "Base"}

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, dict[str, Any]]:
    """All schemas by file name without its suffix."""
    models: dict[str, type[BaseModel]] = {"recipe": Recipe, "base": Base, "layer": Layer, "requests": LockRequests}
    models["profile"] = Profile
    found = {name: _finished(model.model_json_schema()) for name, model in models.items()}
    # A variant inherits the other required keys.
    required = found["recipe"].pop("required")
    for key in ("env", "rules", "profiles"):
        patterns = found["recipe"]["properties"][key]["patternProperties"]
        patterns |= {pattern: {"anyOf": [value, {"type": "null"}]} for pattern, value in patterns.items()}
    found["recipe"]["anyOf"] = [{"required": ["name", "title", "extends"]}, {"required": required}]
    # What a base with a stack shares with others, or what follows from its lock, is not in its file.
    found["family"] = {**found["base"], "title": "Family", "required": []}
    found["family"]["$defs"] = {**found["base"]["$defs"], "Stack": {**found["base"]["$defs"]["Stack"], "required": []}}
    found["base"]["$defs"]["Stack"]["required"] = ["wheels"]
    found["base"]["anyOf"] = [{"required": ["name", "stack"]}, {"required": found["base"].pop("required")}]
    # Keys that start with x- hold values that other keys refer to by YAML anchors.
    found["requests"]["patternProperties"] = {"^x-": {}}
    section: TypeAdapter[LockSection] = TypeAdapter(LockSection)
    found["lock"] = {"title": "LockSection", **_finished(section.json_schema())}
    texts = parse_yaml(DESCRIPTIONS.read_text("utf-8"), str(DESCRIPTIONS))
    for schema in found.values():
        _describe(schema, texts)
    return found


def _describe(node: Any, texts: dict[str, dict[str, str]]) -> None:
    """Give every property of a schema its description."""
    for item in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        _describe(item, texts)
    if isinstance(node, dict) and isinstance(node.get("properties"), dict):
        model = str(node.get("title"))
        own = {**texts["any"], **texts.get(_LIKE.get(model, model), {})}
        for key, value in node["properties"].items():
            if isinstance(value, dict):
                value["description"] = own[key]


def text(schema: dict[str, Any]) -> str:
    """The text of a schema's file."""
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def write(folder: Path = FOLDER) -> None:
    """Write every schema into `folder`."""
    folder.mkdir(exist_ok=True)
    for name, schema in schemas().items():
        (folder / f"{name}.json").write_text(text(schema), "utf-8")


def _finished(schema: dict[str, Any]) -> dict[str, Any]:
    if use := schema.get("$defs", {}).get("LayerUse"):
        schema["$defs"]["LayerUse"] = _with_short_forms(use)
    return {"$schema": _DIALECT, **_normal(schema)}


def _normal(node: Any) -> Any:
    """The schema without differences between versions of pydantic; a mapping with key patterns allows no other keys."""
    if isinstance(node, list):
        return [_normal(item) for item in node]
    if not isinstance(node, dict):
        return node
    normal = {key: _normal(value) for key, value in node.items()}
    if isinstance(normal.get("patternProperties"), dict):
        normal.setdefault("additionalProperties", False)
    if "const" in normal:
        normal.pop("enum", None)
    return normal


def _with_short_forms(use: dict[str, Any]) -> dict[str, Any]:
    """The schema of LayerUse: the name alone, the name with parameters, or the long form of the model."""
    name, parameters = use["properties"]["layer"], use["properties"]["set"]
    named = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "properties": {"layer": False},
        "patternProperties": {name["pattern"]: {"anyOf": [parameters, {"type": "null"}]}},
    }
    return {"title": use["title"], "description": use["description"], "anyOf": [name, named, use]}


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
