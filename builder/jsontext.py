"""Parses JSON of other programs strictly: no duplicate keys, NaN, Infinity or deep nesting."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError

from builder.regular import read_regular

_LIMIT = 4 << 20
"""Bytes, or characters, of one text."""
_LONGEST_PLACE = 300
"""Characters of the names of members in a message."""
_MOST_VALUES = 20_000
"""Each value that is not as a model wants it is an error of a kilobyte."""


def parse_json(text: str | bytes, most: int = _MOST_VALUES) -> Any:
    """JSON text to plain values, at most so many. Raises ValueError (JSONDecodeError with a line if it is malformed).

    A duplicate key in one object is refused, because parsers differ in the value that they keep; so are NaN and
    Infinity, which are not JSON, values that are nested too deeply, and more text or values than any program writes.
    """
    if len(text) > _LIMIT:
        raise ValueError(f"longer than {_LIMIT >> 20} MB")
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    _check_count(value, most)
    return value


def read_json(path: Path) -> Any:
    """A small JSON file that another program may have written. Raises OSError, and ValueError for anything else than
    one JSON document. A link, a pipe and a file of more than 4 MiB are an OSError."""
    return parse_json(read_regular(path, _LIMIT))


def first_problem(error: ValidationError) -> str:
    """Where JSON differs from a pydantic model first, and how: `rootfs.diff_ids: Input should be a valid list`."""
    first = error.errors(include_url=False)[0]
    # Names of members are those of the text.
    place = ascii(".".join(map(str, first["loc"])))[1:-1][:_LONGEST_PLACE]
    return f"{place}: {first['msg']}" if place else first["msg"]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{name[:200]!r} is twice in one object")
    return found


def _check_count(value: Any, most: int) -> None:
    pending, left = [value], most
    while pending:
        inside = pending.pop()
        items = inside.values() if isinstance(inside, dict) else inside if isinstance(inside, list) else ()
        left -= len(items)
        if left < 0:
            raise ValueError(f"more than {most} values")
        pending += items


def _constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
