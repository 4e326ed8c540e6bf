"""Subject, the input of a rule: a recipe with one of its profiles on one base. Problem, its output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from packaging.version import Version

from builder.knowledge.families import family_of, has_experts, weights_of
from builder.knowledge.table import Table, load_table
from builder.model.base import Base
from builder.model.recipe import Model, Recipe
from builder.versions import python_version

Severity = Literal["error", "warning", "note"]
Path = tuple[str, ...]


@dataclass(frozen=True)
class Problem:
    """A violation of a rule. path: its place in the recipe."""

    message: str
    path: Path = ()


@dataclass(frozen=True)
class Subject:
    """A recipe as it would be served. env: of layers, recipe and run. unfit: layers that do not apply, and why."""

    recipe: Recipe
    base: Base
    env: dict[str, str]
    unfit: tuple[tuple[str, str], ...] = ()
    profile: str | None = None
    machine: int | None = None
    """Memory of the machine in GB; None: what the recipe is for."""

    @property
    def model(self) -> Model:
        return self.recipe.model

    @property
    def machine_gb(self) -> int:
        return self.machine or self.recipe.memory_gb

    @cached_property
    def table(self) -> Table | None:
        """The option table of the base's vLLM; None without one."""
        return load_table(self.base.vllm) if self.base.vllm else None

    @cached_property
    def vllm(self) -> Version | None:
        """The base's vLLM; None when unknown."""
        return python_version(self.base.vllm) if self.base.vllm else None

    @cached_property
    def layers(self) -> dict[str, dict[str, Any]]:
        """The recipe's layers with the parameters it gives them."""
        return {use.layer: dict(use.set) for use in self.recipe.layers}

    @cached_property
    def flags(self) -> dict[str, Any]:
        """The options of the serving command. A value that is JSON text, as in a shell, is parsed."""
        return {name: _read(value) for name, value in self.recipe.serve.flags.items() if value is not None}

    def flag(self, name: str) -> str | None:
        """An option's value as lower-case text; None when it is not given."""
        value = self.flags.get(name)
        return None if value is None else str(value).lower()

    def number(self, name: str) -> float | None:
        """An option's value as a number; None when it is not given or no number."""
        try:
            return float(self.flags[name])
        except (KeyError, TypeError, ValueError):
            return None

    @cached_property
    def speculation(self) -> dict[str, Any]:
        """The speculative configuration; empty without one."""
        value = self.flags.get("speculative-config")
        return dict(value) if isinstance(value, dict) else {}

    @property
    def dflash(self) -> bool:
        return self.speculation.get("method") == "dflash"

    @cached_property
    def model_family(self) -> str | None:
        """The model's family: from the recipe, else from the model's name."""
        return self.model.family or family_of(self.model.id)

    @cached_property
    def weights(self) -> str | None:
        """The format of the weights: from the recipe, else from the model's name."""
        return self.model.weights or weights_of(self.model.id)

    @property
    def moe(self) -> bool:
        return self.model.moe or has_experts(self.model.id)

    @property
    def fp4_moe(self) -> bool:
        return self.moe and self.weights in ("nvfp4", "mxfp4")

    def family(self, *names: str) -> bool:
        """Whether the model is of one of these families."""
        return self.model_family in names

    def on(self, *tags: str) -> bool:
        """Whether the base is NVIDIA's image of one of these tags, post releases included, under any name."""
        if self.base.family != "ngc":
            return False
        image = self.base.pin.image.rpartition(":")[2].removesuffix("-py3") if self.base.pin else ""
        names = (self.base.name.removeprefix("ngc-"), image)
        return any(name == tag or name.startswith(f"{tag}.post") for name in names for tag in tags)


def _read(value: Any) -> Any:
    if not (isinstance(value, str) and value.lstrip().startswith("{")):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def option_problem(flag: str, message: str) -> Problem:
    """A problem with an option of the serving command."""
    return Problem(message, ("serve", "flags", flag))


Found = Iterator[Problem]
