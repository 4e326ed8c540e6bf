"""Reads lock sections and the requests they are resolved from."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

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


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise InvalidError(f"cannot read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise InvalidError("not UTF-8 text", where=str(path)) from error
