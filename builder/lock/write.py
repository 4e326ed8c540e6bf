"""Writes lock sections: one entry per line, so that a change of one package is a change of one line."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from builder.model.lock import LockSection


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


def write_file(path: Path, data: bytes) -> None:
    """Write a file, atomically: readers see the old one or the new one. A link stays; so does the file's mode."""
    with staged({path: data}) as put:
        put(path)


@contextlib.contextmanager
def staged(files: Mapping[Path, bytes]) -> Iterator[Callable[[Path], None]]:
    """Write files beside their places, and give what puts one of them there, as `write_file` does.

    So a disk that is full is met before any of them has changed.
    """
    ready: dict[Path, Path] = {}

    def put(path: Path) -> None:
        ready[path].replace(path.resolve())

    try:
        for path, data in files.items():
            target = path.resolve()
            target.parent.mkdir(parents=True, exist_ok=True)
            mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
            descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
            ready[path] = Path(name)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
            except OSError as error:
                error.filename = str(target)
                raise
            ready[path].chmod(mode)
        yield put
    finally:
        for made in ready.values():
            made.unlink(missing_ok=True)
