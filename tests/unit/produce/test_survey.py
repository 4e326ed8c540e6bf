"""A build first reports the work and the space it needs; a disk that is too small stops it before it starts."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from builder.engine.interface import host_architecture
from builder.errors import EngineError
from builder.model.plan import Plan
from builder.produce import survey as surveys
from builder.produce.build import Builder
from builder.produce.survey import check_space, survey, survey_roots
from builder.store.store import Store
from tests.support.engine import FakeEngine
from tests.support.errors import fails
from tests.support.mirror import Mirror
from tests.support.project import Sample
from tests.support.runner import Runner

MakePlan = Callable[..., Plan]


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def sizes(plan: Plan, *ids: str) -> int:
    return sum(item.size for layer in (*plan.layers, *plan.toolchains) if layer.id in ids for item in layer.inputs)


def test_an_empty_store_needs_all_layers_and_inputs(make_plan: MakePlan, store: Store) -> None:
    plan = make_plan()
    needs = survey(store, plan)
    own = f"toolchain-{host_architecture()}"
    ids = [own, "root", "wheels-alpha", "wheels-other", "compiled", "placed"]
    assert [layer.id for layer in needs.layers] == ids
    assert needs.download == sizes(plan, *ids) - shared(plan, own, "root")
    assert needs.engine
    assert needs.temporary >= surveys.ENGINE_SPACE + surveys.DEB_GROWTH * sizes(plan, "root")


def test_what_several_plans_share_counts_once(make_plan: MakePlan, store: Store) -> None:
    plan = make_plan()
    assert survey(store, plan, replace(plan, recipe="other")) == survey(store, plan)
    less, more = plan.only(["root", "wheels-alpha"]), plan.only(["wheels-alpha", "wheels-other"])
    assert [layer.id for layer in survey(store, less, more).layers] == ["root", "wheels-alpha", "wheels-other"]


def shared(plan: Plan, one: str, other: str) -> int:
    """Bytes of the inputs that two layers have in common."""
    by_id = {layer.id: {item.digest: item.size for item in layer.inputs} for layer in (*plan.layers, *plan.toolchains)}
    return sum(size for digest, size in by_id[one].items() if digest in by_id[other])


def test_inputs_in_the_store_are_not_downloaded_again(make_plan: MakePlan, mirror: Mirror, runner: Runner) -> None:
    plan = make_plan()
    built = runner.build(plan)
    assert survey(runner.store, plan).layers == ()
    runner.store.discard(built.records["wheels-alpha"].digest)
    needs = survey(runner.store, plan)
    assert [layer.id for layer in needs.layers] == ["wheels-alpha"]
    assert (needs.download, needs.engine, needs.temporary) == (0, False, 0)
    assert needs.store == sizes(plan, "wheels-alpha")


def test_files_layers_need_no_space_for_an_engine(make_plan: MakePlan, small: Sample, store: Store) -> None:
    small.files["recipes/tiny.yaml"]["layers"].remove("compiled")
    plan = make_plan()
    assert survey(store, plan).temporary == surveys.DEB_GROWTH * sizes(plan, "root")


def test_a_context_takes_the_toolchains_of_all_build_platforms(make_plan: MakePlan, store: Store) -> None:
    needs = survey_roots(store, make_plan())
    assert [layer.id for layer in needs.layers] == ["toolchain-amd64", "toolchain-arm64"]
    assert not needs.engine


def test_a_machine_without_a_toolchain_is_an_error(
    make_plan: MakePlan, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with fails(EngineError, "toolchain-missing"):
        survey(store, make_plan())


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_toolchain_is_the_build_machines(
    make_plan: MakePlan, store: Store, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert (
        survey(store, make_plan()).layers[0].id == {"x86_64": "toolchain-amd64", "aarch64": "toolchain-arm64"}[machine]
    )


def test_a_disk_that_is_too_small_stops_the_build_before_it_starts(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan()
    needs = survey(runner.store, plan)
    wanted = needs.download + needs.store + needs.temporary
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(10**12, 0, wanted))
    check_space(runner.store, needs)
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(10**12, 0, wanted - 1))
    with fails(EngineError, "disk-space-short") as caught:
        runner.build(plan, engine=lambda: pytest.fail("an engine was started"))
    assert "BUILDER_STORE" in caught.value.next
    assert mirror.asked == []


@pytest.mark.parametrize("by", ["engine", "blob"])
def test_a_disk_that_fills_up_during_the_build_is_an_error_and_left_clean(
    make_plan: MakePlan, mirror: Mirror, small_disk: Path, by: str
) -> None:
    """The space that an engine or another program uses is not known in advance."""
    engine = FakeEngine({"compiled": {"opt/big": os.urandom(3_000_000 if by == "engine" else 600_000)}})
    store, plan = Store(small_disk), make_plan()
    quiet = Builder(
        store, plan, engine=lambda: engine, offline=False, listener=lambda event: None, log=lambda line: None
    )
    with fails(EngineError, "disk-full") as caught:
        quiet.run(survey(store, plan))
    assert "BUILDER_STORE" in caught.value.next
    assert list(store.tmp.iterdir()) == []
    found = [store.layer(layer.key) for layer in plan.layers if layer.key]
    assert None in found
    for record in filter(None, found):
        store.verify(record.digest)
