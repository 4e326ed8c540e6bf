"""What a check is asked, and what it answers."""

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
    """What the machine is asked for: serving this recipe on this base, with this peer. All may be missing."""

    host: Host
    recipe: Recipe | None = None
    base: Base | None = None
    interface: str | None = None
    peer: str | None = None

    @property
    def two(self) -> bool:
        """Whether it is about two nodes."""
        asked = self.interface is not None or self.peer is not None
        return asked or (self.recipe is not None and self.recipe.nodes == 2)


@dataclass(frozen=True)
class Answer:
    """What a check found."""

    id: str
    state: State
    message: str
    fix: str = ""


Check = Callable[[Question], Answer | None]
"""None: the check has nothing to do with the question."""
