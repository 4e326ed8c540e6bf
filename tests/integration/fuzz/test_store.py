"""Damaged records, receipts and mirrors: a build has the same digest as before, or ends with a BuilderError."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from builder.errors import BuilderError
from builder.mirror.source import mirror_source
from builder.model.plan import Plan
from builder.store.gc import collect
from builder.store.retention import Policy
from builder.store.store import Store
from tests.support.engine import FakeEngine
from tests.support.fuzz import SEED, times
from tests.support.mirror import Mirror
from tests.support.mirror_bench import Bench
from tests.support.mutate import Mutator

Result = str | None


@pytest.fixture
def plan(make_plan: Callable[..., Plan]) -> Plan:
    return make_plan()


@pytest.fixture
def bench(tmp_path: Path, engine: FakeEngine, mirror: Mirror, plan: Plan) -> Bench:
    """A mirror of the small project, and no other source."""
    made = Bench(tmp_path, engine, mirror)
    made.fill(plan)
    made.cut()
    return made


@pytest.fixture
def built(bench: Bench, plan: Plan) -> tuple[Store, str]:
    """A store with the image of the small project, and its digest."""
    store = bench.store()
    return store, bench.build(plan, bench.source(), store).image.digest


def outcome(act: Callable[[], str]) -> Result:
    """The result of a call, None for a BuilderError; any other error is a bug."""
    try:
        return act()
    except BuilderError as error:
        assert error.what
        return None


@pytest.mark.parametrize("kind", ["layers", "images"])
def test_records_of_a_store(kind: str, bench: Bench, plan: Plan, built: tuple[Store, str]) -> None:
    store, digest = built
    results: set[Result] = set()
    for path in sorted((store.root / kind).iterdir()):
        text = path.read_text("utf-8")
        for data in Mutator(text, "json", f"{SEED} {kind}").some(times(200 if kind == "images" else 30)):
            path.write_bytes(data)
            results.add(outcome(lambda: bench.build(plan, bench.source(), store).image.digest))
            path.write_bytes(data)
            collect(store, Policy(), dry_run=True)
        path.write_text(text, "utf-8")
    assert digest in results
    assert results <= {digest, None}


def test_receipts(bench: Bench, plan: Plan, built: tuple[Store, str]) -> None:
    store, digest = built
    layer = next(item for item in plan.layers if item.id == "wheels-other")
    record = store.layer(layer.key)
    assert record is not None
    receipt = store.read(record.receipt).decode()
    inputs = {(item["name"], item["digest"]) for item in json.loads(receipt)["used"]}
    results: set[Result] = set()
    for data in Mutator(receipt, "json", SEED).some(times(300)):
        store.record_layer(layer.key, replace(record, receipt=store.put(data)))
        (store.root / "images" / f"{plan.key}.json").unlink(missing_ok=True)
        results.add(got := outcome(lambda: bench.build(plan, bench.source(), store).image.digest))
        if got is not None:
            # The mutated receipt was right, or the layer was made again.
            now = store.layer(layer.key)
            assert now is not None
            listed = json.loads(store.read(now.receipt))["used"]
            used = [item for item in listed if item["kind"] in ("deb", "wheel", "source")]
            assert {(item["name"], item["digest"]) for item in used} == inputs
        collect(store, Policy(), dry_run=True)
    assert results == {digest, None}


@pytest.mark.parametrize("name", ["index.json", "oci-layout"])
def test_the_files_of_a_mirror(name: str, bench: Bench, plan: Plan, built: tuple[Store, str]) -> None:
    _, digest = built
    path = bench.folder / "mirror" / name
    results: set[Result] = set()
    for data in Mutator(path.read_text("utf-8"), "json", f"{SEED} {name}").some(times(60)):
        path.write_bytes(data)
        store = bench.store()
        results.add(outcome(lambda store=store: bench.build(plan, mirror_source(str(path.parent)), store).image.digest))  # type: ignore[misc]
        outcome(lambda: str(bench.fill(plan, offline=True).sent))
        shutil.rmtree(store.root)
        shutil.rmtree(bench.stores[-1].root)
    assert digest in results
    assert results <= {digest, None}
