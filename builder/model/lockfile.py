"""The files of a lock: sections (JSON) are read and written, requests (YAML) are read.

A section has one entry per line, so that a change of one package is a change of one line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from builder.atomic import write_file
from builder.errors import InvalidError
from builder.jsontext import parse_json
from builder.model.lock import DebLock, LockRequests, LockSection, SourceLock, WheelLock

_MODELS: dict[str, type[DebLock] | type[WheelLock] | type[SourceLock]] = {
    "debs": DebLock,
    "wheels": WheelLock,
    "sources": SourceLock,
}


def load_section(path: Path) -> LockSection:
    """A lock section file. Raises InvalidError naming the file, the line and the key, and a known key that is close."""
    text = _read(path)
    try:
        data = parse_json(text)
    except json.JSONDecodeError as error:
        raise InvalidError(f"not valid JSON: {error.msg}", where=f"{path}:{error.lineno}") from error
    except ValueError as error:
        raise InvalidError(f"not valid JSON: {error}", where=str(path)) from error
    kind = data.get("kind") if isinstance(data, dict) else None
    model = _MODELS.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise InvalidError("not a lock section", where=str(path), cause=f"its kind is none of {', '.join(_MODELS)}")
    try:
        section = model.model_validate(data)
    except (ValidationError, RecursionError):
        from builder.model.yamlfile import build

        return build(data, model, where=str(path), text=text)
    if section.name != path.stem:
        raise InvalidError(f"name is {section.name!r}, but the file says {path.stem!r}", where=str(path))
    return section


def load_requests(path: Path) -> LockRequests:
    """`requests.yaml`. Keys that start with x- hold what others refer to by YAML anchors. Raises InvalidError."""
    from builder.model.yamlfile import build, parse_yaml

    text = _read(path)
    data = parse_yaml(text, str(path))
    if isinstance(data, dict):
        data = {key: value for key, value in data.items() if not str(key).startswith("x-")}
    requests = build(data, LockRequests, where=str(path), text=text)
    for name, request in requests.wheels.items():
        for other in request.without:
            if other == name or other not in requests.wheels:
                raise InvalidError(f"wheels.{name}.without: there is no other section {other!r}", where=str(path))
            if requests.wheels[other].without:
                raise InvalidError(f"wheels.{name}.without: {other!r} itself leaves something out", where=str(path))
    names = [*requests.debs, *requests.wheels, *requests.sources]
    if both := sorted(name for name in set(names) if names.count(name) > 1):
        raise InvalidError(f"both Debian packages, wheels or sources are named {both[0]!r}", where=str(path))
    if "sources" in names:
        raise InvalidError("'sources' is the section of all sources: call it something else", where=str(path))
    return requests


def section_text(section: LockSection) -> str:
    """The file of a section: JSON with stable order, entries of its lists on one line each."""
    data = section.model_dump(mode="json")
    lines = [f" {json.dumps(key)}: {_value(value, 1)}" for key, value in data.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _value(value: Any, depth: int) -> str:
    """JSON: the section's lists and its request are spread over lines, everything below stays on one."""
    indent = " " * (depth + 1)
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(indent + _line(item) for item in value) + "\n" + " " * depth + "]"
    if isinstance(value, dict) and value and depth == 1:
        lines = [f"{indent}{json.dumps(key)}: {_value(item, 2)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + "\n" + " " * depth + "}"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True)


def write_section(path: Path, section: LockSection) -> None:
    """Write a section, atomically."""
    write_file(path, section_text(section).encode("ascii"))


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise InvalidError(f"cannot read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise InvalidError("not UTF-8 text", where=str(path)) from error
