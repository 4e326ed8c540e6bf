"""Fills a mirror (`builder mirror`): copies each missing file from the store, another mirror or the upstreams."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from threading import Event, Lock
from typing import Any

from builder.digest import Digest
from builder.errors import BuilderError, Cancelled, EngineError, NetworkError, PinError
from builder.events import Event as BuildEvent
from builder.events import Listener
from builder.inputs.fetch import fetch
from builder.mirror.artifact import (
    Artifact,
    Content,
    base_contents,
    layer_contents,
    locked_contents,
    make_artifact,
)
from builder.mirror.backend import Backend
from builder.mirror.basefetch import base_image
from builder.mirror.folder import FolderBackend
from builder.mirror.source import MirrorSource
from builder.model.inputs import FetchEvent, Input
from builder.model.plan import Plan
from builder.model.reference import Reference
from builder.oci.assemble import BaseImage
from builder.parallel import Pool, every
from builder.registry.client import Registry
from builder.store.blobs import Blobs
from builder.store.store import Store

WORKERS = 4

Origin = Callable[[], Iterator[bytes]]


@dataclass
class MirrorReport:
    """The result of a run. artifacts: by tag, each complete artifact and whether this run listed it.

    sent, present: by digest, the size in bytes of each file that was written, or was there already. failed: by tag, the
    errors that keep an artifact incomplete.
    """

    artifacts: dict[str, tuple[Artifact, bool]] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    present: dict[str, int] = field(default_factory=dict)
    failed: dict[str, list[BuilderError]] = field(default_factory=dict)


class Copier:
    """One run over several plans. verify: also read the blobs that are there, and replace damaged ones.

    subject: the descriptor of the image that the artifacts are attached to, in a repository.
    """

    def __init__(
        self,
        backend: Backend,
        store: Store,
        *,
        offline: bool,
        source: MirrorSource | None,
        verify: bool,
        listener: Listener,
        subject: Mapping[str, Any] | None = None,
    ) -> None:
        self.backend = backend
        self.store = store
        self.offline = offline
        self.source = source
        self.verify = verify
        self.report = MirrorReport()
        self._listener = listener
        self._subject = subject
        self._lock = Lock()
        self._received: dict[str, int] = {}
        self._total = 0
        self._cancel = Event()
        self._errors: dict[str, BuilderError] = {}
        self._origins: dict[str, Origin] = {}

    def run(self, plans: Mapping[str, Plan], *, base_layers: bool) -> MirrorReport:
        """Copy the inputs of every plan into the mirror, then list the artifact of each plan that is complete there.

        plans: by tag. base_layers: also the layers of registry bases; a plan with a layer that reads its base needs
        them in any case. Raises EngineError for the disk; errors of single inputs are in the report.
        """
        with self.backend.writing():
            wanted = {tag: found for tag, plan in plans.items() if (found := self._wanted(tag, plan, base_layers))}
            unique = {item.digest: item for artifact in wanted.values() for item in artifact.contents}
            lacking = self._lacking(list(unique.values()))
            self._total = sum(item.size for item in lacking)
            self._check_space(lacking)
            self._fill(lacking)
            for tag, artifact in wanted.items():
                errors = [self._errors[item.digest] for item in artifact.contents if item.digest in self._errors]
                if errors:
                    self.report.failed[tag] = errors
                else:
                    self.report.artifacts[tag] = (artifact, self.backend.publish(artifact))
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
            contents += base_contents(plan, manifest, self.store.read(base.manifest.config.digest))
            if base_layers or any(layer.reads_base for layer in plan.layers):
                layers = layer_contents(plan, base.manifest.layers)
                contents += layers
                origin = Reference.parse(base.reference)
                self._origins |= {item.digest: self._origin(origin, item) for item in layers}
        return make_artifact(plan, tag, contents, self._subject)

    def _base(self, plan: Plan) -> BaseImage | None:
        """The base of a plan; one that is in the mirror already needs no upstream."""
        try:
            return base_image(plan, self.store, offline=True, source=MirrorSource(self.backend))
        except (PinError, NetworkError):
            return base_image(plan, self.store, offline=self.offline, source=self.source)

    def _origin(self, origin: Reference, item: Content) -> Origin:
        def chunks() -> Iterator[bytes]:
            if self.source is not None:
                try:
                    return self.source.backend.read(item.digest, item.size)
                except (PinError, NetworkError, OSError) as error:
                    if self.offline:
                        raise
                    reason = error.what if isinstance(error, BuilderError) else str(error)
                    self.source.report_missing(item.name, reason)
            if self.offline:
                raise PinError(
                    f"{item.name} is neither in the store nor in a mirror, and this is offline",
                    id="base-layer-missing-offline",
                    where=str(origin),
                )
            return self._registry.blob(origin, item.digest, item.size)

        return chunks

    @cached_property
    def _registry(self) -> Registry:
        # One client: it remembers which mirrors have a wrong blob.
        return Registry()

    def _lacking(self, contents: list[Content]) -> list[Content]:
        """The files that the mirror does not have; with `verify` also those whose bytes are wrong."""

        def has(item: Content) -> bool:
            present = self.backend.has(item.digest, item.size)
            if present and (not self.verify or self.backend.is_intact(item.digest, item.size)):
                return True
            self.backend.discard(item.digest)
            return False

        there = dict(zip(contents, every(has, contents, WORKERS), strict=True))
        self.report.present = {item.digest: item.size for item, found in there.items() if found}
        return [item for item, found in there.items() if not found]

    def _check_space(self, lacking: list[Content]) -> None:
        if not isinstance(self.backend, FolderBackend):
            return
        linked = self.backend.root.stat().st_dev == self.store.root.stat().st_dev
        need = sum(item.size for item in lacking if not (linked and self.store.has(item.digest)))
        free = shutil.disk_usage(self.backend.root).free
        if need > free:
            raise EngineError(
                f"not enough disk space: {need / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free",
                id="mirror-disk-space",
                where=self.backend.name,
            )

    def _fill(self, lacking: list[Content]) -> None:
        away = {item.digest: item for item in lacking if not self.store.has(item.digest)}
        files = [item.source for item in away.values() if item.source is not None]
        # A folder receives downloads directly; files for a registry are fetched into the store and then uploaded.
        target: Blobs = self.backend if isinstance(self.backend, FolderBackend) else self.store

        def copy(item: Content) -> None:
            try:
                self._copy(item)
            except BaseException:
                self._cancel.set()
                raise

        def progress(event: FetchEvent) -> None:
            item = away[event.digest]
            if event.state not in ("done", "cached"):
                self._report_progress(item.digest, event.received)
            elif target is self.store:
                pool.submit(partial(copy, item))
            else:
                self._sent(item)

        def failed(source: Input, error: BuilderError) -> None:
            self._errors[source.digest] = error

        with Pool(WORKERS) as pool:
            try:
                for item in lacking:
                    if item.digest not in away or not item.source:
                        pool.submit(partial(copy, item))
                with contextlib.suppress(Cancelled):  # by a copy that failed; `wait` raises its error
                    fetch(
                        target,
                        files,
                        offline=self.offline,
                        progress=progress,
                        source=self.source,
                        failed=failed,
                        cancel=self._cancel,
                    )
                pool.wait()
            except BaseException:
                self._cancel.set()
                raise

    def _copy(self, item: Content) -> None:
        """Copy one file from the store, or a base's layer from the mirror or registry that has it."""
        try:
            if item.digest in self._origins and not self.store.has(item.digest):
                self.backend.put(item.digest, item.size, lambda: self._watched(item, self._origins[item.digest]()))
            else:
                self.backend.put_file(self.store.blob(item.digest), item.digest, item.size, self._check)
        except (PinError, NetworkError) as error:
            if item.digest not in self._origins:
                self._errors[item.digest] = self._store_error(item, error)
            else:
                self._errors[item.digest] = error
            return
        self._sent(item)

    def _store_error(self, item: Content, error: BuilderError) -> BuilderError:
        """The error for a file of the store. `Store.verify` removes a blob with wrong bytes and raises PinError."""
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
            self._report_progress(item.digest, count)

    def _check(self, count: int = 0) -> None:
        if self._cancel.is_set():
            raise Cancelled

    def _sent(self, item: Content) -> None:
        self.report.sent[item.digest] = item.size
        self._report_progress(item.digest, item.size)

    def _report_progress(self, digest: Digest, count: int) -> None:
        with self._lock:
            self._received[digest] = count
            done = sum(self._received.values())
        self._listener(BuildEvent("inputs", "fetching", done, self._total))
