"""The values of a file, read independently of the loaders under test, and their comparison with a loaded model."""

from __future__ import annotations

import json
from typing import Any

import yaml
from pydantic import BaseModel

from builder.digest import Digest
from builder.model.recipe import LayerUse


class AmbiguousFileError(Exception):
    """The file is not valid, or readers disagree about its values."""


class _Loader(yaml.SafeLoader):
    """The Python loader (the product uses libyaml's); dates are text, and duplicate keys are refused."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [pair for pair in pairs if "timestamp" not in pair[0]]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _once(loader: Any, node: Any) -> Any:
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value if not key.tag.endswith(":merge")]
    if len(set(map(repr, keys))) != len(keys):
        raise AmbiguousFileError("a duplicate key")
    loader.flatten_mapping(node)
    return {
        loader.construct_object(key, deep=True): loader.construct_object(value, deep=True) for key, value in node.value
    }


_Loader.add_constructor("tag:yaml.org,2002:map", _once)


def plain_values(data: bytes, kind: str) -> Any:
    """The plain values of a file. Raises AmbiguousFileError."""
    try:
        text = data.decode("utf-8")
        return json.loads(text, object_pairs_hook=_pairs) if kind == "json" else yaml.load(text, Loader=_Loader)
    except AmbiguousFileError:
        raise
    except Exception as error:
        # YAML allows tabs as separators within a line (1.2, section 6.2); this loader knows only spaces.
        if kind == "yaml" and "'\\t' that cannot start any token" in str(error):
            return plain_values(data.replace(b"\t", b" "), kind)
        raise AmbiguousFileError(str(error)) from error


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise AmbiguousFileError("a duplicate key")
    return dict(pairs)


def differs(model: Any, data: Any, place: str = "") -> str:
    """The place where a loaded value differs from the file's value, and both values; empty when they are equal."""
    if isinstance(model, BaseModel):
        return _model_differs(model, _long_form(data) if isinstance(model, LayerUse) else data, place)
    pairs: list[tuple[str, Any, Any]] | None = None
    if isinstance(model, tuple | list) and isinstance(data, list) and len(model) == len(data):
        pairs = [(f"{place}[{number}]", *both) for number, both in enumerate(zip(model, data, strict=True))]
    elif isinstance(model, dict) and isinstance(data, dict) and [*map(repr, model)] == [*map(repr, data)]:
        pairs = [(f"{place}.{key}", model[key], data[key]) for key in model]
    if pairs is not None:
        return next((text for where, one, other in pairs if (text := differs(one, other, where))), "")
    # An int is valid for a float, text for a digest; every other type must be equal.
    alike = type(model) is type(data) or (isinstance(model, float) and type(data) is int)
    alike = alike or (isinstance(model, Digest) and type(data) is str)
    return "" if alike and model == data else f"{place}: {model!r}, not {data!r}"


def _long_form(data: Any) -> Any:
    """The long form of the use of a layer, of which a name alone, and a name with parameters, are short forms."""
    if isinstance(data, str):
        return {"layer": data}
    if isinstance(data, dict) and len(data) == 1 and "layer" not in data:
        ((name, values),) = data.items()
        return {"layer": name, "set": values if values is not None else {}}
    return data


def _model_differs(model: BaseModel, data: Any, place: str) -> str:
    if not isinstance(data, dict):
        return f"{place}: a mapping, not {data!r}"
    fields = type(model).model_fields
    if unknown := [key for key in data if key not in fields]:
        return f"{place}: unknown key {unknown[0]!r} was accepted"
    for name, field in fields.items():
        value = getattr(model, name)
        if name not in data:
            if field.is_required() or value != field.get_default(call_default_factory=True):
                return f"{place}.{name}: {value!r}, absent in the file"
        elif text := differs(value, data[name], f"{place}.{name}"):
            return text
    return ""
