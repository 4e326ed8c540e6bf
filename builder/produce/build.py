"""Builder: makes the missing layers of a plan as tasks of a schedule, fetches inputs and reports progress."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from builder.attest.receipt import base_used
from builder.engine.interface import Engine, host_architecture
from builder.events import Event, Listener, State, now
from builder.inputs.fetch import fetch
from builder.mirror.baselayout import local_base
from builder.mirror.source import MirrorSource
from builder.model.inputs import FetchEvent, Input
from builder.model.plan import Plan, PlannedLayer
from builder.produce.dockerfile import produce_dockerfile
from builder.produce.packer import Packers
from builder.produce.schedule import Schedule, Task
from builder.produce.survey import Needs
from builder.store.blobs import disk_error, is_full
from builder.store.records import LayerRecord
from builder.store.store import Store


class Builder:
    """Makes the missing layers of one plan. The first error cancels all others; finished layers stay in the store."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        *,
        engine: Callable[[], Engine],
        offline: bool,
        listener: Listener,
        log: Callable[[str], None],
        jobs: int | None = None,
        source: MirrorSource | None = None,
    ) -> None:
        self.store = store
        self.source = source
        self.plan = plan
        self.offline = offline
        self.jobs = jobs or os.cpu_count() or 1
        self._engine = engine
        self._listener = listener
        self._log = log
        self._packers = Packers(store)
        self._largest = 1
        """The largest size of a layer that is made."""
        self._received: dict[str, int] = {}
        """The bytes that have arrived of each input that was missing."""

    def run(self, needs: Needs) -> None:
        """Make the layers of `needs`; afterwards `store.layer` has each of them. Raises BuilderError."""
        if not needs.layers:
            return
        engine = self._engine() if needs.engine else None
        # An engine's tasks mostly wait here, so they get workers of their own.
        schedule = Schedule(self.jobs + (engine.workers if engine else 1))
        tasks = self._tasks(schedule, needs.layers, engine)
        self._largest = max(map(_size, needs.layers))
        # Inputs of engine builds are fetched in parallel to the others; every file is fetched once.
        urgent = {item.digest: item for layer, _ in tasks if self._is_urgent(layer) for item in layer.inputs}
        others = {i.digest: i for layer, _ in tasks for i in layer.inputs if i.digest not in urgent}
        self._received = {digest: 0 for _, task in tasks for digest in task.missing}
        groups = [list(group.values()) for group in (urgent, others) if group]
        with self._packers:
            schedule.run([partial(self._fetch, group, schedule, tasks) for group in groups])

    def _tasks(
        self, schedule: Schedule, layers: Sequence[PlannedLayer], engine: Engine | None
    ) -> list[tuple[PlannedLayer, Task]]:
        """A task for each layer, the longest first, so that no large layer runs alone at the end.

        The engine takes longest and needs the toolchain's root, whose packing takes one processor. So only as many
        layers are packed beside the root as there are other processors.
        """
        tasks: list[tuple[PlannedLayer, Task]] = []
        own = f"toolchain-{host_architecture()}"

        def order(layer: PlannedLayer) -> tuple[bool, bool, int]:
            return layer.id != own, not self._is_urgent(layer), -_size(layer)

        urgent = sum(map(self._is_urgent, layers))
        for layer in sorted(layers, key=order):
            missing = {item.digest for item in layer.inputs if not self.store.has(item.digest)}
            beside = not self._is_urgent(layer) and len(tasks) < urgent + self.jobs - 1
            after = [] if beside else [task for other, task in tasks if other.id == own]
            run = partial(self._make, layer, engine, schedule)
            waits = partial(self._report, layer, "waiting", detail="its turn")
            tasks.append((layer, schedule.add(run, missing=missing, after=after, waits=waits)))
        return tasks

    def _is_toolchain(self, layer: PlannedLayer) -> bool:
        return any(layer.id == toolchain.id for toolchain in self.plan.toolchains)

    def _is_urgent(self, layer: PlannedLayer) -> bool:
        return layer.producer == "dockerfile" or self._is_toolchain(layer)

    def _fetch(self, inputs: list[Input], schedule: Schedule, tasks: Sequence[tuple[PlannedLayer, Task]]) -> None:
        def progress(event: FetchEvent) -> None:
            if event.digest in self._received:
                self._received[event.digest] = event.received
            for layer, task in tasks:
                if event.digest in task.missing:
                    self._report_fetching(layer)
            if event.state in ("done", "cached"):
                schedule.arrived(event.digest)

        fetch(
            self.store,
            inputs,
            offline=self.offline,
            progress=progress,
            cancel=schedule.cancelled,
            source=self.source,
        )

    def _report_fetching(self, layer: PlannedLayer) -> None:
        sizes = {item.digest: item.size for item in layer.inputs if item.digest in self._received}
        arrived = sum(min(self._received[digest], size) for digest, size in sizes.items())
        self._report(layer, "fetching", arrived, sum(sizes.values()))

    def _make(self, layer: PlannedLayer, engine: Engine | None, schedule: Schedule) -> None:
        """Make one layer, unless another build with the same store has made it meanwhile."""

        def waiting() -> None:
            schedule.check()
            self._report(layer, "waiting")

        try:
            with self.store.exclusive(layer.key, waiting):
                if self.store.layer(layer.key) is None:
                    begin = now()
                    made = self._produce(layer, engine, schedule)
                    self.store.record_layer(layer.key, replace(made, seconds=round(now() - begin, 3)))
            record = self.store.layer(layer.key)
            assert record is not None
            self._report(layer, "done", record.size, record.size)
        except BaseException as error:
            self._report(layer, "failed")
            if is_full(error):
                raise disk_error(error, self.store.root) from error
            raise

    def _produce(self, layer: PlannedLayer, engine: Engine | None, schedule: Schedule) -> LayerRecord:
        packed = 0

        def progress(count: int) -> None:
            nonlocal packed
            schedule.check()
            packed += count
            self._report(layer, "packing", packed)

        def log(line: str) -> None:
            self._log(f"{layer.id}: {line}")
            self._report(layer, "building", detail=line)

        self._report(layer, "building" if layer.producer == "dockerfile" else "packing")
        if layer.producer == "files":
            compression = "none" if self._is_toolchain(layer) else self.plan.compression
            threads, nice = max(1, self.jobs // 4), self._nice(layer)
            return self._packers.produce(layer, compression=compression, threads=threads, nice=nice, progress=progress)
        assert engine is not None
        return produce_dockerfile(
            self.store,
            layer,
            engine,
            toolchain=self._toolchain() if layer.toolchain else None,
            base=base_used(self.plan),
            local_base=lambda folder: local_base(
                self.plan, self.store, self.source, folder, offline=self.offline, check=schedule.check
            ),
            may_pull=not self.offline,
            platform=self.plan.platform,
            compression=self.plan.compression,
            jobs=self.jobs,
            log=log,
            progress=progress,
            cancel=schedule.cancelled,
        )

    def _nice(self, layer: PlannedLayer) -> int:
        """What gives a layer processor time in proportion to its size, so that all layers end together.

        One more takes a fifth of the time (sched(7)). What waits for the toolchain's root is longer than any layer.
        """
        return 0 if self._is_toolchain(layer) else min(19, round(math.log(self._largest / _size(layer), 1.25)))

    def _toolchain(self) -> tuple[str, LayerRecord]:
        """The root that stages start from on this machine: its id and record."""
        own = f"toolchain-{host_architecture()}"
        root = next(layer for layer in self.plan.toolchains if layer.id == own)
        record = self.store.layer(root.key)
        assert record is not None
        return own, record

    def _report(self, layer: PlannedLayer, state: State, done: int = 0, total: int = 0, detail: str = "") -> None:
        self._listener(Event(layer.id, state, done, total, detail))


def _size(layer: PlannedLayer) -> int:
    """Bytes of the layer's inputs, at least 1."""
    return sum(item.size for item in layer.inputs) or 1
