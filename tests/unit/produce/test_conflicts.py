"""Listings of layers in the store that nothing of builder wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builder.errors import PinError
from builder.produce.conflicts import check_conflicts
from tests.support.errors import fails
from tests.support.fixtures import MakePlan
from tests.support.mirror import Mirror
from tests.support.runner import Runner


@pytest.mark.parametrize("line", ["[1", '["etc"]', "1", '[["x"], "file"]', "\udcff", "[" * 5000])
def test_a_listing_that_is_not_readable_is_named(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, line: str
) -> None:
    plan = make_plan()
    runner.build(plan)
    layer = next(item for item in plan.layers if item.layer == "placed")
    record = runner.store.layer(layer.key)
    assert record is not None
    listing = runner.store.put(line.encode("utf-8", "surrogateescape"))
    with fails(PinError, "listing-unreadable") as caught:
        check_conflicts(replace(plan, layers=(layer,)), {layer.id: replace(record, listing=listing)}, runner.store)
    assert "placed" in caught.value.what
