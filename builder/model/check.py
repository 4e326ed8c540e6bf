"""Smoke checks as layers, bases and recipes name them."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from builder.model.common import Line, Name, Strict


class Check(Strict):
    """A smoke check that an image must pass; `kind` names the check, the rest are its arguments."""

    id: Name
    tier: Literal["static", "cpu", "gpu"]
    kind: Name
    args: dict[str, JsonValue] = {}
    when: Line | None = None
    """A condition over base, params and recipe, as in layers."""
