"""Check: a smoke check as layers, bases and recipes declare it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, JsonValue

from builder.model.common import Name, Strict


def _without_nul(value: Any) -> Any:
    for item in value.items() if isinstance(value, dict) else value if isinstance(value, list) else ():
        for part in item if isinstance(item, tuple) else (item,):
            _without_nul(part)
    if isinstance(value, str) and "\0" in value:
        raise ValueError("must not contain NUL, which no argument of a program can hold")
    return value


class Check(Strict):
    """A smoke check that an image must pass; kind: the name of the check's function. args: its arguments."""

    id: Name
    tier: Literal["static", "cpu", "gpu"]
    kind: Name
    args: Annotated[dict[str, JsonValue], AfterValidator(_without_nul)] = {}
