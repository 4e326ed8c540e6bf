"""The interface of checks: Question, the machine and recipe to check, and Answer, the state with message and fix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from builder.doctor.host import Host
from builder.model.base import Base
from builder.model.recipe import Recipe

State = Literal["ok", "warning", "failed", "unknown"]


@dataclass(frozen=True)
class Question:
    """A machine that is to serve a recipe on a base, with a peer on an interface. Only the machine is required."""

    host: Host
    recipe: Recipe | None = None
    base: Base | None = None
    interface: str | None = None
    peer: str | None = None
    hca: str | None = None

    @property
    def two(self) -> bool:
        """Whether two nodes are checked."""
        linked = self.interface is not None or self.peer is not None
        return linked or (self.recipe is not None and self.recipe.nodes == 2)


@dataclass(frozen=True)
class Answer:
    """The result of a check."""

    id: str
    state: State
    message: str
    fix: str = ""


Check = Callable[[Question], Answer | None]
"""Returns None when the check does not apply to the question."""
