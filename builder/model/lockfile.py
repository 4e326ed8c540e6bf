"""The files of a lock: reads and writes sections (JSON), reads requests (YAML).

A section has one entry per line, so that a change of one package is a change of one line.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from builder.atomic import write_file
from builder.errors import InvalidError
from builder.jsontext import parse_json
from builder.model.lock import (
    DebLock,
    DebRequest,
    LockRequests,
    LockSection,
    Source,
    SourceLock,
    WheelLock,
    WheelRequest,
)
from builder.model.textfile import check_name, read_text
from builder.model.yamlfile import build, parse_yaml

_MODELS: dict[str, type[DebLock] | type[WheelLock] | type[SourceLock]] = {
    "debs": DebLock,
    "wheels": WheelLock,
    "sources": SourceLock,
}


def load_section(path: Path) -> LockSection:
    """A lock section file. Raises InvalidError with the file, the line and the key, and a similar known key."""
    text = read_text(path)
    try:
        data = parse_json(text)
    except json.JSONDecodeError as error:
        raise _not_json(error.msg, f"{path}:{error.lineno}") from error
    except ValueError as error:
        raise _not_json(str(error), str(path)) from error
    kind = data.get("kind") if isinstance(data, dict) else None
    model = _MODELS.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise InvalidError(
            "not a lock section",
            id="lock-kind-unknown",
            where=str(path),
            cause=f"its kind is none of {', '.join(_MODELS)}",
        )
    section: LockSection = build(data, model, where=str(path), text=text)
    check_name(section.name, path.stem, str(path))
    return section


def load_requests(path: Path, elsewhere: Collection[str] = ()) -> LockRequests:
    """`requests.yaml`. Keys that start with x- hold values that other keys refer to by YAML anchors.

    elsewhere: the sections of other folders, which `without` may name too. Raises InvalidError.
    """
    text = read_text(path)
    data = parse_yaml(text, str(path))
    if isinstance(data, dict):
        data = {key: value for key, value in data.items() if not str(key).startswith("x-")}
    requests = build(data, LockRequests, where=str(path), text=text)
    every: dict[str, DebRequest | WheelRequest] = {**requests.debs, **requests.wheels}
    for name, request in every.items():
        kind = "debs" if isinstance(request, DebRequest) else "wheels"
        for other in request.without or ():
            if other == name or (other not in getattr(requests, kind) and other not in elsewhere):
                raise InvalidError(
                    f"{kind}.{name}.without: there is no other section {other!r}",
                    id="request-without-unknown",
                    where=str(path),
                )
    try:
        TopologicalSorter({name: request.without or () for name, request in every.items()}).prepare()
    except CycleError as error:
        raise InvalidError(
            f"each of these sections leaves the next one out: {', '.join(error.args[1])}",
            id="request-without-circular",
            where=str(path),
        ) from None
    names = [*requests.debs, *requests.wheels, *requests.sources]
    if both := sorted(name for name in set(names) if names.count(name) > 1):
        raise InvalidError(
            f"{both[0]!r} names more than one of debs, wheels and sources", id="request-name-twice", where=str(path)
        )
    if "sources" in names:
        raise InvalidError(
            "'sources' is the name of the section that holds all sources",
            id="request-name-reserved",
            where=str(path),
            next="choose another name",
        )
    return requests


def _not_json(reason: str, where: str) -> InvalidError:
    return InvalidError(f"not valid JSON: {reason}", id="json-invalid", where=where)


def load_sources(folders: Sequence[Path]) -> dict[tuple[str, str], tuple[Source, str]]:
    """The sources by name and version, each with the date of its section; of two, that in the first folder.

    Raises InvalidError.
    """
    found: dict[tuple[str, str], tuple[Source, str]] = {}
    for path in (folder / "sources.json" for folder in folders):
        section = load_section(path) if path.is_file() else None
        for source in section.sources if isinstance(section, SourceLock) else ():
            assert section is not None
            found.setdefault((source.name, source.version), (source, section.locked))
    return found


def section_text(section: LockSection) -> str:
    """The file of a section: JSON with stable order, entries of its lists on one line each."""
    data = section.model_dump(mode="json", exclude_none=True)
    lines = [f" {json.dumps(key)}: {_value(value, 1)}" for key, value in data.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _value(value: Any, depth: int) -> str:
    """JSON: the section's lists and its request span lines; each of their values is on one line."""
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
    """Write a section's file, atomically."""
    write_file(path, section_text(section).encode("ascii"))
