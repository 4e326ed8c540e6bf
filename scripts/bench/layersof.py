"""Make all layers of a plan: the measured process of `cores`, which imports what a build does and no more."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

from builder.produce.build import Builder
from builder.produce.survey import survey
from builder.store.store import Store


def build(store: Store, jobs: int) -> None:
    """Make them in the store, whose folder has the plan."""
    plan = pickle.loads((store.root / "plan").read_bytes())
    quiet: dict[str, Any] = {"listener": lambda event: None, "log": lambda line: None, "offline": True}
    Builder(store, plan, engine=lambda: None, jobs=jobs, **quiet).run(survey(store, plan))  # type: ignore[arg-type, return-value]


if __name__ == "__main__":
    build(Store(Path(sys.argv[1])), int(sys.argv[2]))
