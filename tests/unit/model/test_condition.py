"""model.condition: the allowed conditions of a layer.yaml, and when each holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from builder.model.condition import Condition, holds

CONDITIONS: TypeAdapter[Any] = TypeAdapter(Condition)


@dataclass
class Facts:
    base: dict[str, Any] = field(
        default_factory=lambda: {"vllm": "0.20.0", "python": "3.13", "site": "/s", "triton": None, "family": "hermetic"}
    )
    params: dict[str, Any] = field(default_factory=lambda: {"fp8": True, "count": 2, "mode": "fast"})
    layers: frozenset[str] = frozenset({"nccl", "audio"})

    def has_section(self, template: str) -> bool:
        return template == "ray-{{ base.vllm }}"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"base.vllm": ">=0.20"}, True),
        ({"base.vllm": "<0.20"}, False),
        ({"base.vllm": "==0.20.0"}, True),
        ({"base.vllm": ">=0.9,<0.20.1"}, True),
        ({"base.vllm": "!=0.20.0"}, False),
        ({"base.python": ">3.9"}, True),
        ({"base.triton": "<3.6"}, True),
        ({"base.triton": ">=0.1"}, False),
        ({"base.triton": "known"}, False),
        ({"base.triton": "unknown"}, True),
        ({"base.cuda": "unknown"}, True),
        ({"base.site": "known"}, True),
        ({"base.family": "hermetic"}, True),
        ({"base.family": "ngc"}, False),
        ({"params.fp8": True}, True),
        ({"params.fp8": False}, False),
        ({"params.count": 2}, True),
        ({"params.mode": "fast"}, True),
        ({"params.mode": {"not": "fast"}}, False),
        ({"params.mode": {"not": "slow"}}, True),
        ({"recipe.layers": "audio"}, True),
        ({"recipe.layers": "omni"}, False),
        ({"lock": "ray-{{ base.vllm }}"}, True),
        ({"lock": "other"}, False),
        ({"base.vllm": ">=0.20", "params.fp8": False}, False),
        ([{"base.vllm": "<0.20"}, {"params.fp8": True}], True),
        ([{"base.vllm": "<0.20"}, {"params.fp8": False}], False),
    ],
)
def test_holds(condition: Any, expected: bool) -> None:
    assert holds(CONDITIONS.validate_python(condition), Facts()) is expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [("0.20.0rc1", True), ("0.19.1.dev3", True), ("0.20.0+cu130", False), ("25.9-py3", False), ("garbage", True)],
)
def test_versions_of_vendors_compare(given: str, expected: bool) -> None:
    assert holds(CONDITIONS.validate_python({"base.vllm": "<0.20"}), Facts(base={"vllm": given})) is expected


@pytest.mark.parametrize(
    "condition",
    [
        "base.vllm is none",
        True,
        None,
        [],
        {},
        [{}],
        [[]],
        {"base.title": "x"},
        {"base.vllm": "0.20"},
        {"base.vllm": 0.2},
        {"base.vllm": ">=x"},
        {"base.vllm": "~=0.20"},
        {"base.vllm": "===0.20"},
        {"base.vllm": "<" + "9" * 99},
        {"base.vllm": ",".join([">=0.1"] * 17)},
        {"base.family": True},
        {"recipe.layers": ["audio"]},
        {"params.__class__": "x"},
        {"params.mode": None},
        {"params.mode": 1.5},
        {"params.mode": {"not": {"not": "x"}}},
        {"params.mode": {"is": "x"}},
        {"lock": 3},
        {"base.vllm": "a\nb"},
        [{"params.fp8": True}] * 17,
    ],
)
def test_other_conditions_are_refused(condition: Any) -> None:
    with pytest.raises(ValidationError):
        CONDITIONS.validate_python(condition)
