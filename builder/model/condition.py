"""Conditions of a layer.yaml: plain data that the schema validates, never code.

A condition is a mapping, which holds when all of its tests hold, or a list of mappings, which holds when one of them
does. The key of a test is a subject, its value says what the subject must be:

    base.vllm: "<0.24"             versions as PEP 440 orders them; an unknown one is the oldest
    base.site: known               known or unknown
    base.family: hermetic          this text
    params.fp8: true               a parameter of this use of the layer: true, false, a number or text
    params.mode: {not: fast}       anything but this
    recipe.layers: audio           a layer that the recipe uses
    lock: "ray-{{ base.vllm }}"    a section of the lock; no section has a name with an unknown value
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, Field

from builder.model.common import Line
from builder.versions import is_version, python_version

VERSIONS = ("cuda", "python", "triton", "vllm")
"""Fields of a base that hold versions."""

_TEXTS = ("family", "nccl", "site")
_SUBJECT = re.compile(rf"base\.({'|'.join((*VERSIONS, *_TEXTS))})|params\.[a-z][a-z0-9_]{{0,31}}|recipe\.layers|lock")
_OPERATORS = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
_COMPARISON = re.compile(r"(?P<operator>[<>]=?|[=!]=) *(?P<version>[0-9][0-9A-Za-z.+]{0,31})")
_MOST = 16
"""Comparisons of one version."""
_PRESENCE = ("known", "unknown")

Value = Annotated[bool, Field(strict=True)] | Annotated[int, Field(strict=True)] | Line


Expected = Value | Annotated[dict[Literal["not"], Value], Field(min_length=1)]


class Facts(Protocol):
    """What a condition is compared with. layers: those that the recipe uses."""

    @property
    def base(self) -> Mapping[str, Any]: ...

    @property
    def params(self) -> Mapping[str, Any]: ...

    @property
    def layers(self) -> Collection[str]: ...

    def has_section(self, template: str) -> bool:
        """Whether the lock has the section with this name, which is a template."""


def _valid(tests: dict[str, Expected]) -> dict[str, Expected]:
    for subject, expected in tests.items():
        if not _SUBJECT.fullmatch(subject):
            fields = ", ".join(f"base.{name}" for name in sorted((*VERSIONS, *_TEXTS)))
            raise ValueError(f"unknown subject {subject!r}: it is one of {fields}, params.NAME, recipe.layers and lock")
        if not subject.startswith("params.") and not isinstance(expected, str):
            raise ValueError(f"{subject} must be text: put it in quotes")
        if subject.removeprefix("base.") in VERSIONS and expected not in _PRESENCE:
            _comparisons(str(expected))
    return tests


@lru_cache(1024)
def _comparisons(text: str) -> list[tuple[Callable[[Any, Any], bool], str]]:
    """Operators with their right sides. Raises ValueError."""
    found = [_COMPARISON.fullmatch(part.strip()) for part in text.split(",")]
    if len(found) > _MOST or any(each is None or not is_version(each["version"]) for each in found):
        raise ValueError(f"{text!r} is no comparison of versions, such as '<0.24' or '>=0.21,<0.24'")
    return [(_OPERATORS[each["operator"]], each["version"]) for each in found if each]


Tests = Annotated[dict[str, Expected], Field(min_length=1, max_length=16), AfterValidator(_valid)]
Condition = Tests | Annotated[tuple[Tests, ...], Field(min_length=1, max_length=16)]


def holds(condition: Condition, facts: Facts) -> bool:
    """Whether the condition holds."""
    return any(
        all(_passes(subject, expected, facts) for subject, expected in tests.items())
        for tests in _alternatives(condition)
    )


def _passes(subject: str, expected: Expected, facts: Facts) -> bool:
    if subject == "lock":
        return facts.has_section(str(expected))
    if subject == "recipe.layers":
        return expected in facts.layers
    kind, _, name = subject.partition(".")
    if kind == "params":
        given = facts.params[name]
        return bool(given != expected["not"] if isinstance(expected, dict) else given == expected)
    value = facts.base.get(name)
    if expected in _PRESENCE:
        return (value is not None) == (expected == "known")
    if name in VERSIONS:
        have = python_version(value)
        return all(compare(have, python_version(text)) for compare, text in _comparisons(str(expected)))
    return bool(value == expected)


def parameters_of(
    conditions: Iterable[Condition],
) -> Iterator[tuple[str, bool | int | str]]:
    """The parameters that conditions test, with the expected values."""
    for condition in conditions:
        for tests in _alternatives(condition):
            for subject, expected in tests.items():
                if subject.startswith("params."):
                    yield subject.removeprefix("params."), expected["not"] if isinstance(expected, dict) else expected


def _alternatives(condition: Condition) -> tuple[Tests, ...]:
    return condition if isinstance(condition, tuple) else (condition,)
