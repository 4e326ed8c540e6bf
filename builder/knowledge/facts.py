"""Rules that are data: facts about models, options and versions in rules/facts.yaml, without code of their own.

A case of a rule is a mapping of tests that must all hold; the key of a test is a subject, its value what it must be:

    base.vllm: "<0.24"                     versions as PEP 440 compares them; an unknown one passes no comparison
    base.name: vllm-openai-0.27.1          a field of the base: name, family, entrypoint
    model.family: [gemma4-26b, gemma4-31b] one of these texts; families and weights are derived from the model's name
    model.weight_gb: ">40"                 a number
    model.moe: true
    flag.kv-cache-dtype: {not: bfloat16}   anything else, also no such option
    flag.load-format: set                  set or unset; for the base's version: known or unknown
    flag.max-num-batched-tokens: ">=flag.max-model-len"
    flag.kv-cache-dtype: "fp8*"            text that begins like this
    env.VLLM_USE_DEEP_GEMM: "0"            of layers, recipe and run
    spec.method: dflash                    a key of the speculative configuration
    layer.ray: unset                       a layer of the recipe
    ngc: [26.03, 26.04]                    a tag of NVIDIA's image, post releases included
    nodes: 2
    machine.memory_gb: "<128"              the memory of the machine that the recipe is checked for
    host.memory_gb: "<12"                  what --gpu-memory-utilization leaves of it
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

from packaging.specifiers import SpecifierSet
from pydantic import Field, RootModel

from builder.knowledge.subject import Found, Problem, Severity, Subject
from builder.model.common import Line, Strict
from builder.model.yamlfile import load

Text = bool | float | Line
Expected = Text | tuple[Text, ...] | dict[str, Text | tuple[Text, ...]]
_COMPARISON = re.compile(r"(<=|>=|<|>)(flag\.)?([a-z0-9.-]+)")
_PRESENCE = {"set": True, "known": True, "unset": False, "unknown": False}
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Case(Strict):
    """One way to break a rule. at: its place in the recipe. A message shows the values of {SUBJECT}s."""

    when: Annotated[dict[Line, Expected], Field(min_length=1)]
    message: Line
    at: Line


class Fact(Strict):
    """A rule as data; see `Rule`."""

    id: Annotated[str, Field(pattern=r"^GB10-\d{3}$")]
    title: Line
    severity: Severity
    scope: Line
    why: Line
    fix: Line
    source: Line
    cases: Annotated[tuple[Case, ...], Field(min_length=1)]

    def check(self, subject: Subject) -> Found:
        """The first case that holds at each place."""
        places = set()
        for case in self.cases:
            if case.at not in places and all(_passes(subject, *test) for test in case.when.items()):
                places.add(case.at)
                message = re.sub(r"\{([a-z][\w.-]*)\}", lambda m: _shown(_value(subject, m[1])), case.message)
                yield Problem(message, tuple(case.at.split("/")))


class _Facts(RootModel[tuple[Fact, ...]]):
    pass


def facts() -> tuple[Fact, ...]:
    """All rules of rules/facts.yaml."""
    return load(Path(__file__).parent / "rules" / "facts.yaml", _Facts).root


def _host_gb(s: Subject) -> float | None:
    """What --gpu-memory-utilization leaves of the machine's memory."""
    share = s.number("gpu-memory-utilization")
    return None if share is None else round((1 - share) * s.machine_gb, 1)


_READERS: dict[str, Callable[[Subject, str], Any]] = {
    "flag": lambda s, name: s.flags.get(name),
    "env": lambda s, name: s.env.get(name),
    "spec": lambda s, name: s.speculation.get(name),
    "layer": lambda s, name: name if name in s.layers else None,
    "base": lambda s, name: getattr(s.base, name),
    "serve": lambda s, name: getattr(s.recipe.serve, name),
    "recipe": lambda s, name: getattr(s.recipe, name),
}
_KNOWN: dict[str, Callable[[Subject], Any]] = {
    "model.family": lambda s: s.model_family,
    "model.weights": lambda s: s.weights,
    "model.moe": lambda s: s.moe,
    "model.weight_gb": lambda s: s.model.memory_gb,
    "machine.memory_gb": lambda s: s.machine_gb,
    "machine.short": lambda s: s.machine_gb < s.recipe.memory_gb,
    "host.memory_gb": _host_gb,
    "nodes": lambda s: s.recipe.nodes,
}


def _value(s: Subject, subject: str) -> Any:
    """The value of a subject; None when it is not known or not given."""
    kind, _, name = subject.partition(".")
    if reader := _READERS.get(kind):
        return reader(s, name)
    known = _KNOWN.get(subject)
    return known(s) if known else getattr(s.model, name)


def _passes(s: Subject, subject: str, expected: Expected) -> bool:
    if subject == "ngc":
        return s.on(*map(str, expected if isinstance(expected, tuple) else (expected,)))
    if isinstance(expected, dict):
        return not _passes(s, subject, expected["not"])
    if isinstance(expected, tuple):
        return any(_passes(s, subject, item) for item in expected)
    value, text = _value(s, subject), _shown(expected).lower()
    if text in _PRESENCE:
        return (value is not None) == _PRESENCE[text]
    if subject == "base.vllm" and re.match("[<>=!]", text):
        return s.vllm is not None and SpecifierSet(text).contains(s.vllm, prereleases=True)
    return _is(s, value, text)


def _is(s: Subject, value: Any, text: str) -> bool:
    """Whether a value compares as the text says, or is the text; a text with * at its end is a beginning."""
    if found := _COMPARISON.fullmatch(text):
        right = s.number(found[3]) if found[2] else float(found[3])
        return right is not None and any(_COMPARE[found[1]](left, right) for left in _number(value))
    given = str(value).lower()
    return given.startswith(text[:-1]) if text.endswith("*") else given == text


def _number(value: Any) -> Iterator[float]:
    try:
        yield float(value)
    except (TypeError, ValueError):
        return


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
