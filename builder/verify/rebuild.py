"""Rebuilds layers of a plan in a store of their own, which holds nothing but inputs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from builder.engine.interface import Engine
from builder.events import Event, Listener
from builder.inputs.fetch import fetch
from builder.mirror.basefetch import base_image
from builder.mirror.source import MirrorSource
from builder.model.inputs import FetchEvent, Input
from builder.model.plan import Plan, PlannedLayer
from builder.oci.assemble import BaseImage, Image, assemble
from builder.parallel import every
from builder.produce.build import Builder
from builder.produce.survey import Needs, check_space, survey
from builder.smoke.image.opened import LayerBlob
from builder.store.blobs import hash_of
from builder.store.records import LayerRecord
from builder.store.removal import remove
from builder.store.store import Store


@dataclass(frozen=True)
class Rebuilt:
    """The layers that were rebuilt, by id; the whole image when all were; the base of the plan.

    earlier: those of them that the user's store built before, and that were not built again.
    """

    layers: Mapping[str, LayerBlob]
    image: Image | None
    base: BaseImage | None
    earlier: Collection[str] = ()


@contextlib.contextmanager
def rebuild(
    store: Store,
    plan: Plan,
    layers: Collection[str],
    *,
    engine: Callable[[], Engine],
    offline: bool,
    listener: Listener,
    log: Callable[[str], None],
    announce: Callable[[Needs], None],
    jobs: int | None = None,
    source: MirrorSource | None = None,
    built: bool = False,
) -> Iterator[Rebuilt]:
    """Build these layers of a plan again; their blobs are removed at the end of the context.

    Only inputs are taken from `store`, and their bytes are hashed while they are read. built: also the layers that the
    store's user built from the same inputs; they are hashed, and stay. Raises BuilderError.
    """
    records = _built_earlier(store, plan.only(layers)) if built else {}
    blobs = {name: _blob(store, record) for name, record in records.items()}
    part = plan.only({*layers} - records.keys())
    folder = store.scratch()
    try:
        fresh = Store(folder / "store")
        inputs = {item.digest: item for layer in survey(fresh, part).layers for item in layer.inputs}
        missing = {digest: item for digest, item in inputs.items() if not store.has(digest)}
        for item in inputs.values():
            if item.digest not in missing:
                link_input(store, fresh, item)
        needs = survey(fresh, part)
        announce(needs)
        check_space(fresh, needs)
        # Kept in the user's store, so that the next run does not download them again.
        fetch_inputs(store, list(missing.values()), offline=offline, listener=listener, source=source)
        for item in missing.values():
            link_input(store, fresh, item)
        base = base_image(plan, fresh, offline=offline, source=source)
        Builder(fresh, part, engine=engine, offline=offline, listener=listener, log=log, jobs=jobs, source=source).run(
            needs
        )
        earlier = list(records)
        for layer in part.layers:
            if layer.producer != "config":
                records[layer.id] = _record(fresh, layer)
                blobs[layer.id] = _blob(fresh, records[layer.id])
        whole = len(records) == sum(layer.producer != "config" for layer in plan.layers)
        yield Rebuilt(blobs, assemble(plan, records, base) if whole else None, base, earlier)
    finally:
        remove(folder)


def needs_no_compiler(layer: PlannedLayer) -> bool:
    """Whether a layer is unpacked, or made by commands without the toolchain."""
    return layer.producer == "files" or (layer.producer == "dockerfile" and not layer.toolchain)


def fetch_inputs(
    store: Store, inputs: list[Input], *, offline: bool, listener: Listener, source: MirrorSource | None
) -> None:
    """Download inputs into a store, and report them as one. Raises PinError, NetworkError."""
    total = sum(item.size for item in inputs)
    received: dict[str, int] = {}

    def progress(event: FetchEvent) -> None:
        received[event.digest] = event.received
        listener(Event("inputs", "fetching", sum(received.values()), total))

    fetch(store, inputs, offline=offline, progress=progress, source=source)
    listener(Event("inputs", "done", total, total))


def link_input(store: Store, fresh: Store, item: Input) -> None:
    """Give another store on the same file system an input that a store has."""
    target = fresh.blob(item.digest)
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.link(store.blob(item.digest), target, follow_symlinks=False)


def _built_earlier(store: Store, part: Plan) -> dict[str, LayerRecord]:
    """The records of the layers that the store's user built, by id: not those from a layer cache, nor damaged ones."""

    def whole(layer: PlannedLayer) -> LayerRecord | None:
        record = store.layer(layer.key)
        if record is None or record.origin or hash_of(store.blob(record.digest)) != record.digest:
            return None
        return record

    layers = [layer for layer in part.layers if layer.producer != "config"]
    records = every(whole, layers, os.cpu_count() or 1)
    return {layer.id: record for layer, record in zip(layers, records, strict=True) if record is not None}


def _blob(store: Store, record: LayerRecord) -> LayerBlob:
    return LayerBlob(record.digest, record.size, store.blob(record.digest), diff_id=record.diff_id)


def _record(store: Store, layer: PlannedLayer) -> LayerRecord:
    record = store.layer(layer.key)
    assert record is not None
    return record
