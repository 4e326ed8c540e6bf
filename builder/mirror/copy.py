"""Fills a mirror: what it lacks comes from the store, from another mirror or from the upstreams, each file once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event, Lock

from builder.errors import BuilderError, EngineError, NetworkError, PinError
from builder.events import Event as Told
from builder.events import Listener
from builder.inputs.fetch import fetch
from builder.inputs.transfer import Cancelled
from builder.mirror.artifact import (
    Artifact,
    Content,
    base_contents,
    layer_contents,
    locked_contents,
    make_artifact,
)
from builder.mirror.backend import FolderPlace, Place
from builder.mirror.basefetch import base_image
from builder.mirror.source import MirrorSource
from builder.model.inputs import FetchEvent, Input
from builder.model.plan import Plan
from builder.model.reference import Reference
from builder.oci.assemble import BaseImage
from builder.registry.client import Registry
from builder.store.blobs import Blobs
from builder.store.store import Store

AT_ONCE = 4

Origin = Callable[[], Iterator[bytes]]


@dataclass
class Report:
    """What became of a mirror. artifacts: those that are complete, and whether each was written just now.

    sent and present: size in bytes of each file that was, or needed not be, written. failed: by tag, why an artifact
    is not complete.
    """

    artifacts: dict[str, tuple[Artifact, bool]] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    present: dict[str, int] = field(default_factory=dict)
    failed: dict[str, list[BuilderError]] = field(default_factory=dict)


class Copier:
    """One run over several plans."""

    def __init__(
        self,
        place: Place,
        store: Store,
        *,
        offline: bool,
        source: MirrorSource | None,
        verify: bool,
        listener: Listener,
    ) -> None:
        self.place = place
        self.store = store
        self.offline = offline
        self.source = source
        self.verify = verify
        self.report = Report()
        self._listener = listener
        self._lock = Lock()
        self._received: dict[str, int] = {}
        self._total = 0
        self._cancel = Event()
        self._wrong: dict[str, BuilderError] = {}
        self._origins: dict[str, Origin] = {}

    def run(self, plans: Mapping[str, Plan], *, base_layers: bool) -> Report:
        """Put the inputs of every plan into the place, then list the artifacts of those that are complete there.

        plans: by tag. base_layers: also the layers of registry bases; a plan with a layer that reads its base needs
        them in any case. Raises EngineError (the disk); what could not be had is in the report.
        """
        with self.place.writing():
            wanted = {tag: found for tag, plan in plans.items() if (found := self._wanted(tag, plan, base_layers))}
            unique = {item.digest: item for artifact in wanted.values() for item in artifact.contents}
            lacking = self._lacking(list(unique.values()))
            self._total = sum(item.size for item in lacking)
            self._check_space(lacking)
            try:
                self._fill(lacking)
            except BaseException:
                self._cancel.set()
                raise
            for tag, artifact in wanted.items():
                wrong = [self._wrong[item.digest] for item in artifact.contents if item.digest in self._wrong]
                if wrong:
                    self.report.failed[tag] = wrong
                else:
                    self.report.artifacts[tag] = (artifact, self.place.publish(artifact))
        return self.report

    def _wanted(self, tag: str, plan: Plan, base_layers: bool) -> Artifact | None:
        contents = locked_contents(plan)
        try:
            base = self._base(plan)
        except (PinError, NetworkError) as error:
            self.report.failed[tag] = [error]
            return None
        if base is not None:
            assert plan.base_manifest is not None
            manifest = self.store.read(plan.base_manifest)
            contents += base_contents(plan, manifest, self.store.read(json.loads(manifest)["config"]["digest"]))
            if base_layers or any(layer.reads_base for layer in plan.layers):
                layers = layer_contents(plan, base.manifest["layers"])
                contents += layers
                origin = Reference.parse(base.reference)
                self._origins |= {item.digest: self._origin(origin, item) for item in layers}
        return make_artifact(plan, tag, contents)

    def _base(self, plan: Plan) -> BaseImage | None:
        """The base of a plan; what the place holds already needs no upstream."""
        try:
            return base_image(plan, self.store, offline=True, source=MirrorSource(self.place))
        except (PinError, NetworkError):
            return base_image(plan, self.store, offline=self.offline, source=self.source)

    def _origin(self, origin: Reference, item: Content) -> Origin:
        def chunks() -> Iterator[bytes]:
            if self.source is not None:
                try:
                    return self.source.place.read(item.digest, item.size)
                except (PinError, NetworkError, OSError) as error:
                    if self.offline:
                        raise
                    self.source.lacks(item.name, error.what if isinstance(error, BuilderError) else str(error))
            if self.offline:
                raise PinError(f"{item.name} is nowhere here, and this is offline", where=str(origin))
            return Registry().blob(origin, item.digest, item.size)

        return chunks

    def _lacking(self, contents: list[Content]) -> list[Content]:
        """Those that the place does not have; with `verify`, or has with other bytes."""

        def has(item: Content) -> bool:
            there = self.place.has(item.digest, item.size)
            if there and (not self.verify or self.place.sound(item.digest, item.size)):
                return True
            self.place.discard(item.digest)
            return False

        with ThreadPoolExecutor(AT_ONCE) as workers:
            there = dict(zip(contents, workers.map(has, contents), strict=True))
        self.report.present = {item.digest: item.size for item, found in there.items() if found}
        return [item for item, found in there.items() if not found]

    def _check_space(self, lacking: list[Content]) -> None:
        if not isinstance(self.place, FolderPlace):
            return
        linked = self.place.root.stat().st_dev == self.store.root.stat().st_dev
        need = sum(item.size for item in lacking if not (linked and self.store.has(item.digest)))
        free = shutil.disk_usage(self.place.root).free
        if need > free:
            raise EngineError(
                f"not enough disk space: {need / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free", where=self.place.name
            )

    def _fill(self, lacking: list[Content]) -> None:
        away = {item.digest: item for item in lacking if not self.store.has(item.digest)}
        files = [item.source for item in away.values() if item.source is not None]
        # A folder takes what is fetched as it comes; to a registry it goes by way of the store.
        target: Blobs = self.place if isinstance(self.place, FolderPlace) else self.store
        with ThreadPoolExecutor(AT_ONCE) as workers:
            futures = [
                workers.submit(self._one, item) for item in lacking if item.digest not in away or not item.source
            ]

            def heard(event: FetchEvent) -> None:
                item = away[event.digest]
                if event.state not in ("done", "cached"):
                    self._tell(item.digest, event.received)
                elif target is self.store:
                    futures.append(workers.submit(self._one, item))
                else:
                    self._sent(item)

            def failed(source: Input, error: BuilderError) -> None:
                self._wrong[source.digest] = error

            try:
                fetch(
                    target,
                    files,
                    offline=self.offline,
                    progress=heard,
                    source=self.source,
                    failed=failed,
                    cancel=self._cancel,
                )
                for future in futures:
                    future.result()
            except BaseException:
                self._cancel.set()
                raise

    def _one(self, item: Content) -> None:
        """Bring one file from the store, or a layer of a base from where that is."""
        try:
            if item.digest in self._origins and not self.store.has(item.digest):
                self.place.give(item.digest, item.size, lambda: self._watched(item, self._origins[item.digest]()))
            else:
                self.place.take(self.store.blob(item.digest), item.digest, item.size, self._check)
        except (PinError, NetworkError) as error:
            if item.digest not in self._origins:
                self._wrong[item.digest] = self._damaged(item, error)
            else:
                self._wrong[item.digest] = error
            return
        self._sent(item)

    def _damaged(self, item: Content, error: BuilderError) -> BuilderError:
        """Why a file of the store could not be taken: its bytes are wrong (then it goes), or something else."""
        if isinstance(error, PinError):
            try:
                self.store.verify(item.digest)
            except PinError as found:
                return found
        return error

    def _watched(self, item: Content, chunks: Iterator[bytes]) -> Iterator[bytes]:
        count = 0
        for chunk in chunks:
            self._check()
            yield chunk
            count += len(chunk)
            self._tell(item.digest, count)

    def _check(self, count: int = 0) -> None:
        if self._cancel.is_set():
            raise Cancelled

    def _sent(self, item: Content) -> None:
        self.report.sent[item.digest] = item.size
        self._tell(item.digest, item.size)

    def _tell(self, digest: str, count: int) -> None:
        with self._lock:
            self._received[digest] = count
            done = sum(self._received.values())
        self._listener(Told("inputs", "fetching", done, self._total))
