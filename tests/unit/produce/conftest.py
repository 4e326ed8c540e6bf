from __future__ import annotations

from collections.abc import Callable

import pytest

from builder.model.plan import Plan
from builder.store.store import Store
from tests.support.engine import FakeEngine
from tests.support.runner import Runner

__all__ = ["Runner"]


@pytest.fixture
def runner(store: Store, engine: FakeEngine) -> Runner:
    return Runner(store, engine)


@pytest.fixture
def keep() -> Callable[[Store, Plan], set[str]]:
    """Ids of a plan's layers that a store has."""
    return lambda store, plan: {layer.id for layer in plan.layers if layer.key and store.layer(layer.key) is not None}
