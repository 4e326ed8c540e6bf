"""produce.build: errors of a build, what stays in the store, and that an error or interrupt stops everything else."""

from __future__ import annotations

import _thread
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from builder.digest import Digest
from builder.engine.interface import host_architecture
from builder.errors import EngineError, ExitCode, InvalidError, NetworkError, PinError
from builder.events import Event
from builder.model.plan import Plan
from builder.produce.packer import Packers
from builder.store.store import Store
from tests.support.engine import FakeEngine
from tests.support.errors import fails
from tests.support.mirror import Mirror
from tests.support.project import WIDGET, Sample
from tests.support.runner import Runner

MakePlan = Callable[..., Plan]
Keep = Callable[[Store, Plan], set[str]]


def changed(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@contextmanager
def within(seconds: float) -> Iterator[None]:
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < seconds


def test_a_failed_layer_leaves_the_finished_ones_and_the_next_build_goes_on(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, engine: FakeEngine, keep: Keep
) -> None:
    plan = make_plan()
    engine.targets = {}
    engine.wait = threading.Event()

    def heard(event: Event) -> None:
        if keep(runner.store, plan) == {"root", "wheels-alpha", "wheels-other", "placed"} and engine.wait:
            engine.wait.set()

    with fails(EngineError, "engine-build-failed") as caught:
        runner.build(plan, listener=heard)
    assert caught.value.code == ExitCode.ENGINE
    assert keep(runner.store, plan) == {"root", "wheels-alpha", "wheels-other", "placed"}
    assert runner.temporary() == []
    assert runner.store.image(plan.key) is None
    engine.targets = {"compiled": WIDGET}
    mirror.asked.clear()
    assert runner.build(plan).made == {"compiled"}
    assert mirror.asked == []


def test_an_error_elsewhere_stops_the_engine(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, engine: FakeEngine, keep: Keep
) -> None:
    engine.wait = threading.Event()
    building = threading.Event()
    engine.on_build = lambda request: building.set()

    def heard(event: Event) -> None:
        if event.layer == "placed":
            building.wait(5)
            raise InvalidError("a mistake elsewhere", id="test-mistake")

    plan = make_plan()
    with within(5), fails(InvalidError, "test-mistake"):
        runner.build(plan, listener=heard)
    assert engine.cancelled == ["compiled"]
    assert "compiled" not in keep(runner.store, plan)
    assert runner.temporary() == []


@pytest.mark.parametrize("round", range(5))
def test_the_error_is_raised_and_not_the_cancelled_tasks(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, engine: FakeEngine, round: int
) -> None:
    engine.targets = {}
    with fails(EngineError, "engine-build-failed"):
        runner.build(make_plan(), jobs=16)


KINDS = ["deb", "wheel", "source", "toolchain"]


@pytest.fixture
def locked(small: Sample, mirror: Mirror) -> Callable[[str], tuple[dict[str, bytes], str]]:
    """Where the mirror has one input of a kind."""

    def found(kind: str) -> tuple[dict[str, bytes], str]:
        if kind == "wheel":
            return mirror.wheels["beta"], "beta-1.0-py3-none-any.whl"
        marks = {"deb": "tool_tiny-root", "source": "widget_1.0", "toolchain": f"make_toolchain-{host_architecture()}"}
        return mirror.pool, next(path for path in mirror.pool if marks[kind] in path)

    return found


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_with_one_other_byte_is_refused(
    make_plan: MakePlan, runner: Runner, locked: Callable[[str], tuple[dict[str, bytes], str]], kind: str
) -> None:
    files, name = locked(kind)
    files[name] = changed(files[name])
    with fails(PinError, "input-mismatch") as caught:
        runner.build(make_plan())
    assert caught.value.code == ExitCode.PIN
    assert runner.temporary() == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_that_no_mirror_has_is_refused(
    make_plan: MakePlan, runner: Runner, locked: Callable[[str], tuple[dict[str, bytes], str]], kind: str
) -> None:
    files, name = locked(kind)
    del files[name]
    with fails(PinError, "input-vanished") as caught:
        runner.build(make_plan())
    assert "builder lock --update" in caught.value.next
    assert runner.temporary() == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_that_was_damaged_in_the_store_is_found_before_it_is_used(
    make_plan: MakePlan, runner: Runner, locked: Callable[[str], tuple[dict[str, bytes], str]], kind: str
) -> None:
    plan = make_plan()
    files, name = locked(kind)
    first = runner.build(plan)
    for record in first.records.values():
        runner.store.discard(record.digest)
    for toolchain in plan.toolchains:
        if (made := runner.store.layer(toolchain.key)) is not None:
            runner.store.discard(made.digest)
    path = runner.store.blob(Digest.of(files[name]))
    path.chmod(0o644)
    path.write_bytes(changed(files[name]))
    with fails(PinError, "store-blob-damaged") as caught:
        runner.build(plan)
    assert "run the command again" in caught.value.next
    assert runner.build(plan).image.digest == first.image.digest


def test_a_mirror_that_is_down_is_a_network_error(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builder.inputs.fetch.ROUNDS", 1)
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple/")
    monkeypatch.setenv("BUILDER_DEB_MIRROR", "http://127.0.0.1:9/debian")
    with pytest.raises(NetworkError) as caught:
        runner.build(make_plan())
    assert caught.value.code == ExitCode.NETWORK


def interrupt_when(ready: Callable[[], bool]) -> threading.Thread:
    def wait() -> None:
        while not ready():
            time.sleep(0.01)
        _thread.interrupt_main(signal.SIGINT)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_an_interrupt_stops_the_engine_and_leaves_a_clean_store(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, engine: FakeEngine, keep: Keep
) -> None:
    plan = make_plan()
    engine.wait = threading.Event()
    interrupt_when(lambda: bool(engine.seen) and len(keep(runner.store, plan)) == 4)
    with within(10), pytest.raises(KeyboardInterrupt):
        runner.build(plan)
    assert engine.cancelled == ["compiled"]
    assert runner.temporary() == []
    engine.wait = None
    assert runner.build(plan).made == {"compiled"}


def test_a_root_can_be_cancelled_before_each_of_its_packages(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All packages are unpacked before the first byte is packed; Ctrl-C must not wait for that."""
    plan = make_plan()
    runner.build(plan)
    root = next(layer for layer in plan.layers if layer.id == "root")
    asked: list[int] = []

    def progress(count: int) -> None:
        asked.append(count)
        if len(asked) == 2:
            raise KeyboardInterrupt

    verified: list[str] = []
    monkeypatch.setattr(runner.store, "verify", verified.append)
    with pytest.raises(KeyboardInterrupt), Packers(runner.store) as packers:
        packers.produce(root, compression="zstd", threads=1, nice=0, progress=progress)
    assert asked == [0, 0]
    assert verified == [root.inputs[0].digest]
    assert runner.temporary() == []


def test_an_interrupt_does_not_wait_for_a_silent_mirror(make_plan: MakePlan, mirror: Mirror, runner: Runner) -> None:
    path = next(f"/debian/{path}" for path in mirror.pool if "widget_1.0" in path)
    mirror.silent.add(path)
    interrupt_when(lambda: path in mirror.asked)
    with within(8), pytest.raises(KeyboardInterrupt):
        runner.build(make_plan())
    assert runner.temporary() == []


def test_an_interrupt_while_fetches_are_being_started_does_not_wait_for_a_silent_mirror(
    make_plan: MakePlan, mirror: Mirror, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = next(f"/debian/{path}" for path in mirror.pool if "widget_1.0" in path)
    mirror.silent.add(path)

    class Interrupted(threading.Thread):
        def start(self) -> None:
            super().start()
            is_feed = self._args[1] is None  # type: ignore[attr-defined]
            while is_feed and self.is_alive():
                if path in mirror.asked:
                    raise KeyboardInterrupt
                time.sleep(0.01)

    monkeypatch.setattr("builder.produce.schedule.Thread", Interrupted)
    with within(8), pytest.raises(KeyboardInterrupt):
        runner.build(make_plan())
    assert path in mirror.asked and runner.temporary() == []


def test_an_error_does_not_wait_for_a_silent_mirror(make_plan: MakePlan, mirror: Mirror, runner: Runner) -> None:
    mirror.silent.add(next(f"/debian/{path}" for path in mirror.pool if "widget_1.0" in path))
    mirror.wheels["beta"].clear()
    with within(8), pytest.raises(PinError) as caught:
        runner.build(make_plan())
    assert "beta 1.0" in caught.value.what
    assert runner.temporary() == []
