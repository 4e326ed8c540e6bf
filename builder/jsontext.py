"""JSON that says one thing to every reader."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """JSON text to plain values. Raises ValueError (JSONDecodeError with a line where it is malformed).

    A key that stands twice in one object is refused, as readers differ in which they take; so are NaN and Infinity,
    which are no JSON, and what is nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands twice in one object")
    return found


def _constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")
