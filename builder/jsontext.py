"""Parses JSON of other programs strictly: no duplicate keys, NaN, Infinity or deep nesting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError

from builder.regular import read_regular

_LIMIT = 4 << 20
"""bytes"""


def parse_json(text: str | bytes) -> Any:
    """JSON text to plain values. Raises ValueError (JSONDecodeError with a line where it is malformed).

    A duplicate key in one object is refused, because parsers differ in the value that they keep; so are NaN and
    Infinity, which are not JSON, and values that are nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(path: Path) -> Any:
    """A small JSON file that another program may have written. Raises OSError, and ValueError for anything else than
    one JSON document. A link, a pipe and a file of more than 4 MiB are an OSError."""
    return parse_json(read_regular(path, _LIMIT))


def first_problem(error: ValidationError) -> str:
    """Where JSON differs from a pydantic model first, and how: `rootfs.diff_ids: Input should be a valid list`."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is twice in one object")
    return found


def _constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
