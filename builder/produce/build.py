"""Runs a plan: fetches what is missing, makes the layers that the store does not have, several at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event as Flag
from threading import Lock

from builder.attest.receipt import base_used
from builder.engine.base import Engine, host_architecture
from builder.errors import Cancelled
from builder.events import Event, Listener, State
from builder.inputs.fetch import fetch
from builder.mirror.base import local_base
from builder.mirror.source import MirrorSource
from builder.model.inputs import FetchEvent, Input
from builder.model.plan import Plan, PlannedLayer
from builder.produce.dockerfile import produce_dockerfile
from builder.produce.files import produce_files
from builder.produce.survey import Needs
from builder.store.blobs import disk_error, is_full
from builder.store.records import LayerRecord
from builder.store.store import Store

# mallopt(3)
_M_ARENA_MAX = -8
_M_MMAP_THRESHOLD = -3


@dataclass
class _Job:
    layer: PlannedLayer
    missing: set[str]
    after: list[_Job] = field(default_factory=list)
    blocked: int = 0
    toolchain: PlannedLayer | None = None
    started: bool = False


class Builder:
    """Makes every missing layer of one plan. The first error stops all others; what was finished stays in the store."""

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
        self._cancel = Flag()
        self._lock = Lock()
        self._failure: BaseException | None = None
        self._received: dict[str, int] = {}

    def run(self, needs: Needs) -> None:
        """Make the layers of `needs`; afterwards `store.layer` has every one. Raises BuilderError."""
        if not needs.layers:
            return
        _bound_memory()
        engine = self._engine() if needs.engine else None
        jobs = self._jobs(needs.layers)
        try:
            self._run(jobs, engine)
        except Cancelled:
            # What was given up says nothing; why it was given up does.
            if self._failure is None:
                raise
            raise self._failure from None

    def _run(self, jobs: list[_Job], engine: Engine | None) -> None:
        # What an engine waits for comes over a connection of its own, each file once.
        urgent = {item.digest: item for job in jobs if self._is_urgent(job.layer) for item in job.layer.inputs}
        others = {i.digest: i for job in jobs for i in job.layer.inputs if i.digest not in urgent}
        # An engine compiles with all processors anyway and mostly waits for it here, so it takes no worker away.
        with ThreadPoolExecutor(self.jobs + 1) as workers, ThreadPoolExecutor(2) as fetchers:
            futures: list[Future[None]] = []

            def start(job: _Job) -> None:
                with self._lock:
                    if job.started or job.missing or job.blocked or self._cancel.is_set():
                        return
                    job.started = True
                    futures.append(workers.submit(self._make, job, engine, start))

            try:
                # Longest first, so that no large layer is left to run alone at the end.
                for job in sorted(
                    jobs, key=lambda job: (not self._is_urgent(job.layer), -sum(item.size for item in job.layer.inputs))
                ):
                    start(job)
                fetches = [
                    fetchers.submit(self._fetch, list(wanted.values()), jobs, start)
                    for wanted in (urgent, others)
                    if wanted
                ]
                self._wait(fetches, futures)
            except BaseException:
                self._cancel.set()
                raise

    def _is_toolchain(self, layer: PlannedLayer) -> bool:
        return any(layer.id == toolchain.id for toolchain in self.plan.toolchains)

    def _is_urgent(self, layer: PlannedLayer) -> bool:
        return layer.producer == "dockerfile" or self._is_toolchain(layer)

    def _failed(self, error: BaseException) -> None:
        """Remember the first error that is one, and stop all others."""
        with self._lock:
            if self._failure is None and not isinstance(error, Cancelled):
                self._failure = error
        self._cancel.set()

    def _jobs(self, layers: Sequence[PlannedLayer]) -> list[_Job]:
        jobs = [
            _Job(layer, {item.digest for item in layer.inputs if not self.store.has(item.digest)}) for layer in layers
        ]
        own = f"toolchain-{host_architecture()}"
        toolchain = next((layer for layer in self.plan.toolchains if layer.id == own), None)
        root = next((job for job in jobs if job.layer.id == own), None)
        for job in jobs:
            if job.layer.toolchain:
                job.toolchain = toolchain
            # The engine has the longest way to go and waits for its toolchain: nothing else takes processors from that.
            if root is not None and job is not root:
                root.after.append(job)
                job.blocked += 1
        return jobs

    def _wait(self, fetches: list[Future[None]], futures: list[Future[None]]) -> None:
        waiting = list(fetches)
        while True:
            done, _ = wait(waiting, timeout=0.5, return_when=FIRST_EXCEPTION)
            errors = [error for future in done if (error := future.exception()) is not None]
            for error in sorted(errors, key=lambda error: isinstance(error, Cancelled)):
                raise error
            with self._lock:
                waiting = [*fetches, *futures]
            if all(future.done() for future in waiting) and not any(future.exception() for future in waiting):
                return

    def _fetch(self, wanted: list[Input], jobs: list[_Job], start: Callable[[_Job], None]) -> None:
        received = self._received

        def heard(event: FetchEvent) -> None:
            digest = event.digest
            received[digest] = event.received
            for job in jobs:
                if digest in job.missing:
                    if event.state in ("done", "cached"):
                        job.missing.discard(digest)
                    sizes = {item.digest: item.size for item in job.layer.inputs}
                    arrived = sum(min(received.get(d, s if self.store.has(d) else 0), s) for d, s in sizes.items())
                    self._tell(job, "fetching", arrived, sum(sizes.values()))
                    start(job)

        try:
            fetch(self.store, wanted, offline=self.offline, progress=heard, cancel=self._cancel, source=self.source)
        except Cancelled:
            raise
        except BaseException as error:
            self._failed(error)
            raise

    def _make(self, job: _Job, engine: Engine | None, start: Callable[[_Job], None]) -> None:
        layer = job.layer
        try:
            with self.store.exclusive(layer.key, self._check_cancel):
                if self.store.layer(layer.key) is None:
                    self.store.record_layer(layer.key, self._produce(job, engine))
            record = self.store.layer(layer.key)
            assert record is not None
            self._tell(job, "done", record.size, record.size)
        except BaseException as error:
            told = disk_error(error, self.store.root) if is_full(error) else None
            self._failed(told or error)
            self._tell(job, "failed")
            if told is not None:
                raise told from error
            raise
        for other in job.after:
            other.blocked -= 1
            start(other)

    def _check_cancel(self) -> None:
        if self._cancel.is_set():
            raise Cancelled

    def _produce(self, job: _Job, engine: Engine | None) -> LayerRecord:
        layer = job.layer
        packed = 0

        def progress(count: int) -> None:
            nonlocal packed
            if self._cancel.is_set():
                raise Cancelled
            packed += count
            self._tell(job, "packing", packed)

        def said(line: str) -> None:
            self._log(f"{layer.id}: {line}")
            self._tell(job, "building", detail=line)

        self._tell(job, "building" if layer.producer == "dockerfile" else "packing")
        if layer.producer == "files":
            compression = "none" if self._is_toolchain(layer) else self.plan.compression
            return produce_files(self.store, layer, compression=compression, threads=1, progress=progress)
        assert engine is not None
        toolchain = None
        if job.toolchain is not None:
            root = self.store.layer(job.toolchain.key)
            assert root is not None
            toolchain = (job.toolchain.id, root)
        return produce_dockerfile(
            self.store,
            layer,
            engine,
            toolchain=toolchain,
            base=base_used(self.plan),
            local_base=lambda folder: local_base(
                self.plan, self.store, self.source, folder, offline=self.offline, check=self._check_cancel
            ),
            may_pull=not self.offline,
            platform=self.plan.platform,
            compression=self.plan.compression,
            jobs=self.jobs,
            log=said,
            progress=progress,
            cancel=self._cancel,
        )

    def _tell(self, job: _Job, state: State, done: int = 0, total: int = 0, detail: str = "") -> None:
        self._listener(Event(job.layer.id, state, done, total, detail))


def _bound_memory() -> None:
    """Keep glibc from hoarding: with an arena for each thread, and freed chunks kept in them, the chunks of a megabyte
    that pass through here by the thousand would add up to more than half a gigabyte."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_ARENA_MAX, 2)
        libc.mallopt(_M_MMAP_THRESHOLD, 512 << 10)
