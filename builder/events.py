"""Progress events of a running build, or of a docker that pulls: the state of each layer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

State = Literal["waiting", "fetching", "building", "packing", "unpacking", "cached", "done", "failed"]


@dataclass(frozen=True)
class Event:
    """The state of a layer. done, total: bytes; total is 0 when unknown. detail: one line from the engine."""

    layer: str
    state: State
    done: int = 0
    total: int = 0
    detail: str = ""
    at: float = 0.0


Listener = Callable[[Event], None]


def now() -> float:
    """Seconds of a monotonic clock."""
    return time.monotonic()
