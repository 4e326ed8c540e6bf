"""produce.packer: layers made by processes are those made here; what happens when one fails, is cancelled or killed."""

from __future__ import annotations

import itertools
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.errors import Cancelled, EngineError, InvalidError
from builder.model.plan import Plan, PlannedLayer
from builder.produce import packer
from builder.produce.packer import Packers
from builder.store.store import Store
from tests.support.errors import fails
from tests.support.mirror import Mirror
from tests.support.runner import Runner

MakePlan = Callable[..., Plan]


@pytest.fixture
def layers(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> dict[str, PlannedLayer]:
    """The layers of a plan that was built here; from now on all are worth a process."""
    plan = make_plan()
    runner.build(plan)
    monkeypatch.setattr(packer, "WORTH", 0)
    return {layer.id: layer for layer in plan.layers}


def made(
    packers: Packers, layer: PlannedLayer, progress: Callable[[int], None] = lambda count: None, nice: int = 0
) -> Any:
    return packers.produce(layer, compression="zstd", threads=1, nice=nice, progress=progress)


def pids(packers: Packers) -> list[int]:
    return [item.process.pid for item in packers._all]


def test_a_process_makes_the_same_layers_one_after_the_other(layers: dict[str, PlannedLayer], store: Store) -> None:
    counts: list[int] = []
    with Packers(store) as packers:
        for name in ("root", "wheels-alpha", "wheels-other"):
            here = store.layer(layers[name].key)
            assert here is not None
            assert made(packers, layers[name], counts.append) == replace(here, seconds=0.0)
        assert len(pids(packers)) == 1
    assert sum(counts) > 20_000
    assert packers._all[0].process.poll() == 0


def test_a_process_gets_the_nice_value_of_its_layer(layers: dict[str, PlannedLayer], store: Store) -> None:
    """It cannot lower its own one again: another process makes a layer that has to be faster."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    with Packers(store) as packers:
        for nice in (1, 3, 3, 2):
            made(packers, layers["wheels-alpha"], nice=nice)
        first, second = pids(packers)
        assert packers._all[0].process.wait(2) == 0
        assert os.getpriority(os.PRIO_PROCESS, second) == own + 2
    assert first != second


def test_what_a_process_refuses_is_the_same_error(layers: dict[str, PlannedLayer], store: Store) -> None:
    layer = layers["wheels-alpha"]
    wrong = replace(layer, spec={**(layer.spec or {}), "files": [{"path": "proc/x", "content": "x"}]})
    with Packers(store) as packers:
        with fails(InvalidError, "layer-files-invalid") as caught:
            made(packers, wrong)
        assert caught.value.where == "layer wheels-alpha"
        assert made(packers, layer).digest


def test_a_mistake_in_a_process_tells_its_traceback(layers: dict[str, PlannedLayer], store: Store) -> None:
    wrong = replace(layers["wheels-alpha"], spec={"debs": []})
    with Packers(store) as packers, pytest.raises(KeyError) as caught:
        made(packers, wrong)
    assert "tree.py" in "".join(caught.value.__notes__)


def test_a_killed_process_is_an_error_of_the_layer(layers: dict[str, PlannedLayer], store: Store) -> None:
    with Packers(store) as packers:
        made(packers, layers["wheels-alpha"])
        os.kill(pids(packers)[0], signal.SIGKILL)
        with fails(EngineError, "packer-ended") as caught:
            made(packers, layers["wheels-other"])
    assert "SIGKILL" in str(caught.value)
    assert caught.value.where == "layer wheels-other"


def test_a_cancelled_process_ends_and_leaves_nothing(
    layers: dict[str, PlannedLayer], store: Store, tmp_path: Path
) -> None:
    def progress(count: int) -> None:
        raise Cancelled

    begin = time.monotonic()
    with Packers(store) as packers, pytest.raises(Cancelled):
        made(packers, layers["root"], progress)
    assert packers._all[0].process.returncode is not None
    assert time.monotonic() - begin < 2
    assert list(store.tmp.iterdir()) == []


def test_gc_keeps_what_a_process_made(layers: dict[str, PlannedLayer], store: Store) -> None:
    with Packers(store) as packers:
        record = made(packers, layers["wheels-alpha"])
    claimed = (store.root / "locks" / store.owner).read_text().split()
    assert {record.digest, record.listing, record.receipt} <= set(claimed)


def test_a_process_imports_nothing_of_the_folder_it_is_started_in(
    layers: dict[str, PlannedLayer], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "pickle", "builder", "isal"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    with Packers(store) as packers:
        assert made(packers, layers["wheels-alpha"]).digest


def test_a_process_starts_without_pydantic() -> None:
    """It would be half of the time that a process takes to start."""
    code = "import sys; from builder.produce.packer import work; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_layers_get_processor_time_in_proportion_to_their_sizes(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, tuple[int, int]] = {}

    def produce(self: Packers, layer: PlannedLayer, *, nice: int, **options: Any) -> Any:
        given[layer.id] = nice, sum(item.size for item in layer.inputs)
        return produce_here(self, layer, nice=nice, **options)

    produce_here = Packers.produce
    monkeypatch.setattr(Packers, "produce", produce)
    runner.build(make_plan())
    assert all(nice == 0 for name, (nice, _) in given.items() if name.startswith("toolchain"))
    others = sorted(pair for name, pair in given.items() if not name.startswith("toolchain"))
    assert len({nice for nice, _ in others}) > 1
    for (nice, larger), (other, smaller) in itertools.pairwise(others):
        # A step is a fifth of the time (sched(7)).
        assert other == 19 or abs(other - nice - math.log(larger / smaller, 1.25)) <= 1
