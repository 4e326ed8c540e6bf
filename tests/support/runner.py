"""Builds plans with a fake engine and keeps the events that a build reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from builder.engine.interface import Engine
from builder.events import Event
from builder.model.plan import Plan
from builder.produce.image import Built, build_image
from builder.produce.survey import Needs
from builder.store.store import Store
from tests.support.engine import FakeEngine


@dataclass
class Runner:
    """Builds plans, and keeps events, log lines and announcements."""

    store: Store
    engine: FakeEngine
    events: list[Event] = field(default_factory=list)
    announced: list[Needs] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    started: int = 0

    def build(self, plan: Plan, *, offline: bool = False, jobs: int | None = 4, **more: Any) -> Built:
        """The image of a plan. Keywords replace arguments of `build_image`."""
        settings: dict[str, Any] = {
            "engine": self.start,
            "listener": self.events.append,
            "log": self.lines.append,
            "announce": self.announced.append,
        }
        return build_image(self.store, plan, offline=offline, jobs=jobs, **{**settings, **more})

    def start(self) -> Engine:
        """The engine; counts the calls."""
        self.started += 1
        return self.engine

    def states(self, layer: str) -> list[str]:
        """The states that a layer went through, each once."""
        return list(dict.fromkeys(event.state for event in self.events if event.layer == layer))

    def temporary(self) -> list[str]:
        """The names of the files below tmp/."""
        return [path.name for path in self.store.tmp.iterdir()]
