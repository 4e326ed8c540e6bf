"""Known drafters for speculative decoding, and the models that each is trained for."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import RootModel

from builder.model.common import Line, Name, Strict, Version
from builder.model.recipe import ModelId
from builder.model.yamlfile import load


class Drafter(Strict):
    """A drafter. targets: families of models; model: the repository it was trained for; vllm: the first with it."""

    id: ModelId
    targets: tuple[Name, ...]
    model: ModelId
    vllm: Version | None = None
    note: Line | None = None


class _Drafters(RootModel[tuple[Drafter, ...]]):
    pass


@cache
def drafters() -> tuple[Drafter, ...]:
    """All known drafters."""

    return load(Path(__file__).with_name("drafters.yaml"), _Drafters).root


def drafter(name: str) -> Drafter | None:
    """A drafter by its repository; None when it is unknown."""
    return next((item for item in drafters() if item.id == name), None)
