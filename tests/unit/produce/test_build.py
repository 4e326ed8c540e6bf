"""produce.image: a build makes missing layers once and in parallel; a second build makes and fetches nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.engine.interface import host_architecture
from builder.errors import EngineError, PinError, UsageError
from builder.events import Event
from builder.model.plan import Plan
from builder.produce.image import assembled
from builder.store.images import earlier_seconds
from builder.store.store import Store
from tests.support.engine import FakeEngine
from tests.support.errors import fails
from tests.support.mirror import Mirror
from tests.support.project import Sample, stored_base, vendor_base
from tests.support.runner import Runner
from tests.support.tars import contents, listing

MakePlan = Callable[..., Plan]
OWN = f"toolchain-{host_architecture()}"


def test_a_build_makes_all_missing_layers(make_plan: MakePlan, mirror: Mirror, runner: Runner) -> None:
    plan = make_plan()
    built = runner.build(plan)
    assert set(built.records) == {"root", "wheels-alpha", "wheels-other", "compiled", "placed"}
    assert built.made == {*built.records, OWN}
    assert runner.store.read(built.image.digest) == built.image.manifest
    assert runner.temporary() == []
    assert [len(needs.layers) for needs in runner.announced] == [6]


def test_a_second_build_starts_no_engine_and_sends_no_request(
    make_plan: MakePlan, mirror: Mirror, runner: Runner
) -> None:
    plan = make_plan()
    first = runner.build(plan)
    mirror.asked.clear()
    runner.events.clear()
    again = runner.build(plan)
    assert again.image.digest == first.image.digest
    assert again.made == frozenset()
    assert (mirror.asked, runner.events, runner.started, len(runner.announced)) == ([], [], 1, 1)


@pytest.mark.parametrize("jobs", [1, 2, 16])
def test_the_digest_does_not_depend_on_store_or_jobs(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, engine: FakeEngine, tmp_path: Path, jobs: int
) -> None:
    plan = make_plan()
    other = Runner(Store(tmp_path / "other"), engine)
    assert other.build(plan, jobs=jobs).image.digest == runner.build(plan).image.digest


def test_every_file_is_fetched_once(make_plan: MakePlan, small: Sample, mirror: Mirror, runner: Runner) -> None:
    # A section that a toolchain and a layer of the image share.
    small.files["recipes/bases/tiny.yaml"]["layers"][0] = {"root": {"lock": OWN}}
    runner.build(make_plan())
    files = [path for path in mirror.asked if not path.startswith("/simple/")]
    assert len(files) == len(set(files)) > 5


def test_the_engine_gets_what_the_layer_names_and_nothing_else(
    make_plan: MakePlan, small: Sample, mirror: Mirror, runner: Runner, engine: FakeEngine
) -> None:
    plan = make_plan()
    runner.build(plan, jobs=3)
    (seen,) = engine.seen
    compiled = plan.layers[3]
    assert seen.dockerfile == compiled.dockerfile
    assert set(seen.context) == {
        *("inputs/widget-1.0.tar.gz", "layers/compiled/patch.diff"),
        f"{OWN}.tar",
    }
    assert seen.context["inputs/widget-1.0.tar.gz"] == small.pool["pool/main/widget_1.0.orig.tar.gz"]
    assert contents(seen.context[f"{OWN}.tar"])["usr/bin/make"] == host_architecture().encode()
    request = seen.request
    assert (request.target, request.platform, request.jobs) == ("compiled", "linux/arm64", 3)
    assert request.pull is None
    assert request.build_arguments == {"JOBS": "3"}
    assert not request.work.exists()


def test_the_output_of_the_engine_is_normalized(make_plan: MakePlan, mirror: Mirror, runner: Runner) -> None:
    plan = make_plan(compression="none")
    record = runner.build(plan).records["compiled"]
    members = listing(runner.store.read(record.digest))
    assert list(members) == ["opt", "opt/widget", "opt/widget/lib", "opt/widget/lib/libwidget.so"]
    assert {(member.uid, member.uname, member.mtime) for member in members.values()} == {(0, "", 1577836800)}


def test_the_toolchain_is_built_before_the_layers_that_need_it(
    make_plan: MakePlan, small: Sample, mirror: Mirror, runner: Runner
) -> None:
    plan = make_plan()
    runner.build(plan)
    done = [event.layer for event in runner.events if event.state == "done"]
    assert done.index(OWN) < done.index("compiled")
    other = next(layer for layer in plan.toolchains if layer.id != OWN)
    assert runner.store.layer(other.key) is None


def test_without_a_layer_that_compiles_there_is_no_toolchain_and_no_engine(
    make_plan: MakePlan, small: Sample, mirror: Mirror, runner: Runner
) -> None:
    small.files["recipes/tiny.yaml"]["layers"].remove("compiled")
    plan = make_plan()
    runner.build(plan, engine=lambda: pytest.fail("an engine was started"))
    assert not [path for path in mirror.asked if "toolchain" in path]


def test_a_compiled_layer_in_the_store_needs_no_engine_for_the_others(
    make_plan: MakePlan, mirror: Mirror, runner: Runner
) -> None:
    plan = make_plan()
    first = runner.build(plan)
    runner.store.discard(first.records["placed"].digest)
    runner.store.discard(first.records["wheels-alpha"].digest)
    again = runner.build(plan, engine=lambda: pytest.fail("an engine was started"))
    assert again.made == {"placed", "wheels-alpha"}
    assert again.image.digest == first.image.digest


def test_layers_are_built_in_parallel(make_plan: MakePlan, mirror: Mirror, runner: Runner, engine: FakeEngine) -> None:
    """The other layers are packed while the engine compiles: the engine waits for the last of them."""
    plan = make_plan()
    engine.wait = threading.Event()
    waited = {"root", "wheels-alpha", "wheels-other", "placed"}

    def heard(event: Event) -> None:
        runner.events.append(event)
        if event.state == "done":
            waited.discard(event.layer)
            if not waited and engine.wait is not None:
                engine.wait.set()

    assert runner.build(plan, listener=heard).records["compiled"]


def test_progress_has_byte_counts_and_the_engines_output(make_plan: MakePlan, mirror: Mirror, runner: Runner) -> None:
    runner.build(make_plan())
    states = {layer: [state for state in runner.states(layer) if state != "waiting"] for layer in ("root", "compiled")}
    assert states == {"root": ["fetching", "packing", "done"], "compiled": ["fetching", "building", "packing", "done"]}
    fetched = [event for event in runner.events if event.layer == "root" and event.state == "fetching"]
    assert fetched[-1].done == fetched[-1].total > 0
    assert runner.lines == ["compiled: building compiled"]


def test_only_what_is_missing_is_counted_as_fetched(make_plan: MakePlan, mirror: Mirror, runner: Runner) -> None:
    plan = make_plan()
    runner.build(plan.only({"wheels-other"}))
    group = next(layer for layer in plan.layers if layer.id == "wheels-other")
    gone = group.inputs[0]
    runner.store.discard(gone.digest)
    runner.store.discard(runner.store.layer(group.key).digest)  # type: ignore[union-attr]
    runner.events.clear()
    runner.build(plan.only({"wheels-other"}))
    fetched = [event for event in runner.events if event.state == "fetching"]
    assert {event.total for event in fetched} == {gone.size}, "the other wheel is in the store"


def test_a_layer_takes_about_as_long_as_one_of_its_name_took(
    make_plan: MakePlan, mirror: Mirror, runner: Runner
) -> None:
    assert earlier_seconds(runner.store, make_plan().layers) == {}
    runner.build(make_plan())
    same = earlier_seconds(runner.store, make_plan().layers)
    assert same.keys() == {"root", "wheels-alpha", "wheels-other", "compiled", "placed"}
    other = make_plan(sets={"compiled": {"version": "2.0"}})
    assert earlier_seconds(runner.store, other.layers).keys() == same.keys() - {"compiled"}
    runner.build(other)
    assert earlier_seconds(runner.store, make_plan().layers) == same, "equal parameters come first"


def test_two_builds_of_one_store_share_the_work(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, engine: FakeEngine
) -> None:
    plan = make_plan()
    other = Runner(Store(runner.store.root), engine)
    digests: list[str] = []

    def waits_for_the_other(one: Runner) -> bool:
        return Event("compiled", "waiting") in one.events

    threads = [
        threading.Thread(target=lambda one=one: digests.append(one.build(plan).image.digest)) for one in (runner, other)
    ]
    engine.wait = threading.Event()
    for thread in threads:
        thread.start()
    # The second build says that it waits for the first.
    deadline = time.monotonic() + 20
    while not any(map(waits_for_the_other, (runner, other))) and time.monotonic() < deadline:
        time.sleep(0.02)
    engine.wait.set()
    for thread in threads:
        thread.join()
    assert sorted(map(waits_for_the_other, (runner, other))) == [False, True]
    assert len(digests) == 2
    assert len(set(digests)) == 1
    assert len(engine.seen) == 1


def test_offline_works_from_the_inputs_alone(make_plan: MakePlan, mirror: Mirror, runner: Runner) -> None:
    plan = make_plan()
    first = runner.build(plan)
    for record in first.records.values():
        runner.store.discard(record.digest)
    mirror.asked.clear()
    assert runner.build(plan, offline=True).image.digest == first.image.digest
    assert mirror.asked == []


def test_offline_without_the_inputs_is_an_error(make_plan: MakePlan, mirror: Mirror, runner: Runner) -> None:
    with fails(PinError, "input-missing-offline") as caught:
        runner.build(make_plan(), offline=True)
    assert "without --offline" in caught.value.next
    assert mirror.asked == []


def test_an_image_with_a_missing_layer_is_not_built(make_plan: MakePlan, store: Store) -> None:
    with fails(UsageError, "image-not-built") as caught:
        assembled(store, make_plan())
    assert caught.value.cause == "layer root is not in the store"


def test_a_missing_engine_is_an_error_before_any_download(make_plan: MakePlan, mirror: Mirror, runner: Runner) -> None:
    def none() -> FakeEngine:
        raise EngineError("no usable engine", id="test-engine")

    with fails(EngineError, "test-engine"):
        runner.build(make_plan(), engine=none)
    assert mirror.asked == []


@pytest.mark.parametrize("base", ["tiny", "vendor"])
def test_only_a_layer_that_reads_a_registry_base_has_one_pulled_and_by_its_digest(
    make_plan: MakePlan, small: Sample, mirror: Mirror, runner: Runner, engine: FakeEngine, base: str
) -> None:
    small.files["dockerfiles/layers/compiled/layer.yaml"]["reads_base"] = True
    small.files["recipes/bases/vendor.yaml"] = vendor_base("registry.example/a/b:1", stored_base(runner.store))
    small.files["recipes/tiny.yaml"]["compatible"] = ["vendor"]
    plan = make_plan(base=base)
    runner.build(plan)
    # A hermetic base is no image that could be pulled.
    wanted = f"registry.example/a/b:1@{plan.base_manifest}" if base == "vendor" else None
    assert [seen.request.pull for seen in engine.seen] == [wanted]


def test_a_layer_whose_inputs_have_come_says_that_it_waits_for_its_turn(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, engine: FakeEngine
) -> None:
    """The compiled layer has its source long before the toolchain's root is packed."""
    runner.build(make_plan(), jobs=1)
    waiting = Event("compiled", "waiting", detail="its turn")
    of_compiled = [event for event in runner.events if event.layer == "compiled"]
    assert waiting in of_compiled
    assert {event.state for event in of_compiled[: of_compiled.index(waiting)]} == {"fetching"}
