"""YAML files to models, with errors that name the file, the line and the closest known key."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import yaml
from pydantic import BaseModel, ValidationError

from builder.errors import InvalidError
from builder.model.textfile import read_text

M = TypeVar("M", bound=BaseModel)

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_CHARACTERS = 1 << 20
_MAX_DEPTH = 50
_MAX_NODES = 20_000
_PER_NODE = 40
"""Characters of a text that count as one node more."""
_MAX_DIGITS = 100
_MAX_TAGS = 100
"""Directives that name tags: libyaml compares each with all others."""
_NOT_PLAIN = {f"tag:yaml.org,2002:{name}" for name in ("binary", "omap", "pairs", "set", "timestamp")}


class _Strict(_Loader):  # type: ignore[misc]
    """The safe loader, restricted to values that JSON can hold; an unquoted date is text.

    A key that occurs twice in one mapping is refused, because YAML would silently keep the last value.
    """

    yaml_constructors: ClassVar[Any] = {k: v for k, v in _Loader.yaml_constructors.items() if k not in _NOT_PLAIN}
    yaml_implicit_resolvers: ClassVar[Any] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NOT_PLAIN]
        for first, resolvers in _Loader.yaml_implicit_resolvers.items()
    }


def _mapping(loader: Any, node: Any) -> dict[Any, Any]:
    keys: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            # A number, for example: no model has such a key, and a sender can choose numbers with equal hashes.
            raise yaml.constructor.ConstructorError(None, None, "a key must be plain text", key_node.start_mark)
        if key in keys:
            raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key!r}", key_node.start_mark)
        keys.add(key)
    loader.flatten_mapping(node)
    mapping: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        # Merged keys come first, so that the mapping's own keys win.
        mapping[loader.construct_object(key_node, deep=True)] = loader.construct_object(value_node, deep=True)
    return mapping


def _number(loader: Any, node: Any) -> float | int:
    # YAML 1.1 has numbers of base 60, `1:59:59`, which take quadratic time.
    if len(node.value) > _MAX_DIGITS:
        raise yaml.constructor.ConstructorError(None, None, "a number is too long", node.start_mark)
    value = (loader.construct_yaml_int if node.tag.endswith(":int") else loader.construct_yaml_float)(node)
    if not math.isfinite(value):
        raise yaml.constructor.ConstructorError(None, None, "a number must be finite", node.start_mark)
    return cast("float | int", value)


_Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Strict.add_constructor("tag:yaml.org,2002:float", _number)
_Strict.add_constructor("tag:yaml.org,2002:int", _number)


def _check_size(text: str) -> None:
    """Refuse a text that is nested too deeply, or too large once its aliases are expanded.

    This reads events one by one. Composing a tree from them recurses, in libyaml until the stack overflows.
    """
    sizes: dict[str, int] = {}
    open_: list[tuple[str | None, int]] = []
    total = 0
    for event in yaml.parse(text, Loader=_Loader):
        anchor, mark = getattr(event, "anchor", None), cast("yaml.Mark | None", event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            if anchor in (name for name, _ in open_):
                raise yaml.MarkedYAMLError(problem=f"*{anchor} refers to a node that contains it", problem_mark=mark)
            total += sizes.get(anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent):
            size = 1 + len(event.value) // _PER_NODE
            total += size
            if anchor is not None:
                sizes[anchor] = size
        elif isinstance(event, yaml.CollectionStartEvent):
            open_.append((anchor, total))
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            name, before = open_.pop()
            if name is not None:
                sizes[name] = total - before
        if len(open_) > _MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=mark)
        if total > _MAX_NODES:
            raise yaml.MarkedYAMLError(problem="too large, with its aliases expanded", problem_mark=mark)


def parse_yaml(text: str, where: str) -> Any:
    """YAML text to plain values. Raises InvalidError with `where` and the line."""
    if len(text) > _MAX_CHARACTERS:
        raise InvalidError(f"longer than {_MAX_CHARACTERS} characters", id="yaml-too-long", where=where)
    if (at := text.find("\ufeff", 1)) > 0:
        raise InvalidError(
            "a byte order mark inside the text, which YAML readers treat differently",
            id="yaml-byte-order-mark",
            where=f"{where}:{text.count(chr(10), 0, at) + 1}",
        )
    try:
        if text.count("%TAG") > _MAX_TAGS:
            raise ValueError(f"more than {_MAX_TAGS} directives %TAG")
        _check_size(text)
        return yaml.load(text, Loader=_Strict)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"{where}:{mark.line + 1}" if mark else where
        raise _not_yaml(error.problem or error.context or "", line) from error
    except (yaml.YAMLError, ValueError, LookupError, RecursionError, TypeError) as error:
        # The parser raises more than YAMLError: !!int '' is an IndexError.
        raise _not_yaml(str(error).splitlines()[0], where) from error


def _not_yaml(reason: str, where: str) -> InvalidError:
    return InvalidError(f"not valid YAML: {reason}", id="yaml-invalid", where=where)


def compose(text: str) -> yaml.Node | None:
    """The nodes of a text that `parse_yaml` accepts, for `line_of`."""
    return yaml.compose(text, Loader=_Loader)


def line_of(node: yaml.Node | None, path: Sequence[int | str], *, exact: bool = False) -> int | None:
    """The line, counted from 1, of the key or list item that `path` leads to from the node of a whole document.

    A part of the path that the document does not have is skipped, as pydantic names the kinds of a union in its paths;
    with `exact`, the answer is then None. None also for an empty document.
    """
    line = node.start_mark.line + 1 if node else None
    for part in path:
        if isinstance(node, yaml.MappingNode):
            key, value = next((pair for pair in node.value if pair[0].value == str(part)), (None, None))
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            key = value = node.value[part]
        else:
            key = value = None
        if key is not None:
            line, node = key.start_mark.line + 1, value
        elif exact:
            return None
    return line


def load(path: Path, model: type[M]) -> M:
    """A YAML file as a model. Raises InvalidError naming file, line and field."""
    text = read_text(path)
    return build(parse_yaml(text, str(path)), model, where=str(path), text=text)


def build(data: Any, model: type[M], *, where: str, text: str = "") -> M:
    """Plain values as a model. text: the YAML or JSON of the values, for line numbers. Raises InvalidError."""
    try:
        return model.model_validate(data)
    except (ValidationError, RecursionError) as error:
        raise _explain(error, data, model, where, text) from error


def _explain(error: Exception, data: Any, model: type[BaseModel], where: str, text: str) -> InvalidError:
    if not isinstance(error, ValidationError):
        return InvalidError("nested too deeply", id="value-too-deep", where=where)
    first = min(error.errors(include_url=False), key=lambda item: item["type"] != "extra_forbidden")
    location = first["loc"]
    line = _line(text, location)
    field = ".".join(str(part) for part in location)
    at = f"{where}:{line}" if line else where
    if first["type"] == "extra_forbidden":
        key = str(location[-1])
        known = _known_keys(model, location)
        close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(sorted(known))}" if known else ""
        return InvalidError(f"unknown key {key!r}", id="key-unknown", where=at, cause=hint)
    if first["type"] == "missing":
        return InvalidError(f"{field or 'the file'} is missing", id="key-missing", where=at)
    # pydantic gives one error for each type of a union; the reader sees one error.
    place = _place(data, location)
    alike = [item for item in error.errors(include_url=False) if _place(data, item["loc"]) == place]
    messages = [yaml_message(item["msg"]) for item in alike]
    expected = dict.fromkeys(message.removeprefix("Input should be ") for message in messages)
    reason = messages[0] if len(expected) == 1 else f"Input should be {', or '.join(expected)}"
    more = error.error_count() - len(alike)
    reason += f" (and {more} more)" if more else ""
    name = ".".join(map(str, place)) or "the file"
    return InvalidError(f"{name}: {reason}", id="value-invalid", where=at)


def yaml_message(message: str) -> str:
    """A message of pydantic in terms of YAML: a list instead of a tuple."""
    return message.removeprefix("Value error, ").partition(" or instance of ")[0].replace("a valid tuple", "a list")


def _line(text: str, location: tuple[int | str, ...]) -> int | None:
    try:
        return line_of(compose(text), location)
    except yaml.YAMLError:
        # JSON that is not YAML, such as a tab between values.
        return None


def _place(data: Any, location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The location without the parts that only name a type of a union, which pydantic adds."""
    place: list[int | str] = []
    for part in location:
        inside = (isinstance(data, dict) and part in data) or (isinstance(data, list) and part in range(len(data)))
        if inside:
            data = data[part]
        elif isinstance(part, str) and (part in ("bool", "int", "float", "str") or "[" in part):
            continue
        place.append(part)
    return tuple(place)


def _known_keys(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """The keys that the mapping at the location may have, as far as the model's schema defines them."""
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})
    node: dict[str, Any] = schema
    for part in location[:-1]:
        found: Any = node.get("properties", {}).get(part) if isinstance(part, str) else node.get("items")
        # The schema has a mapping whose keys have a pattern under that pattern.
        patterns = node.get("patternProperties") or {"": node.get("additionalProperties")}
        if found is None and isinstance(next(iter(patterns.values())), dict):
            found = next(iter(patterns.values()))
        if found is None:
            continue
        node = _resolved(found, definitions)
    return list(node.get("properties", {}))


def _resolved(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    for option in node.get("anyOf", [node]):
        if "$ref" in option:
            return dict(definitions.get(option["$ref"].rpartition("/")[2], {}))
        if "items" in option or "properties" in option:
            return dict(option)
    return node
