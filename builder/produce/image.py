"""From a plan to an image: survey, build missing layers, assemble, record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from builder.attest.receipt import Used, base_used, check_inputs, used_of
from builder.cache.cache import LayerCache
from builder.engine.interface import Engine
from builder.errors import UsageError
from builder.events import Listener
from builder.mirror.basefetch import base_image
from builder.mirror.source import MirrorSource
from builder.model.plan import Plan
from builder.oci.assemble import Image, assemble
from builder.plan.imageconfig import PROFILE_LABEL
from builder.produce.build import Builder
from builder.produce.conflicts import check_conflicts
from builder.produce.survey import Needs, check_space, survey
from builder.store.records import LayerRecord
from builder.store.store import Store


@dataclass(frozen=True)
class Built:
    """A built image, its layers by id, and the ids of the layers that this build made, or took from a layer cache."""

    plan: Plan
    image: Image
    records: dict[str, LayerRecord]
    made: frozenset[str]
    taken: frozenset[str] = frozenset()


def build_image(
    store: Store,
    plan: Plan,
    *,
    engine: Callable[[], Engine],
    offline: bool,
    listener: Listener,
    log: Callable[[str], None],
    announce: Callable[[Needs], None],
    jobs: int | None = None,
    source: MirrorSource | None = None,
    cache: LayerCache | None = None,
    named: bool = True,
) -> Built:
    """Build the layers that the store does not have, and assemble the image. Starts no engine when it has all of them.

    announce: called with the needs of the build before it starts. source: a mirror that is asked for inputs first.
    cache: where missing layers are looked up; what it says of the others is compared with them. named: whether the plan
    is of a recipe that has the name which it says. Raises BuilderError.
    """
    base = base_image(plan, store, offline=offline, source=source)
    layers = [layer for layer in plan.layers if layer.producer != "config"]
    found = cache.look_up(layers) if cache is not None else {}
    taken: frozenset[str] = frozenset()
    if cache is not None and found:
        taken = cache.take(store, layers, found, listener)
    needs = survey(store, plan)
    if needs.layers:
        announce(needs)
        check_space(store, needs)
        Builder(store, plan, engine=engine, offline=offline, listener=listener, log=log, jobs=jobs, source=source).run(
            needs
        )
    if cache is not None:
        cache.compare(layers, found, store)
    built = assembled(store, plan, base_checked=base is not None, offline=offline, named=named)
    return Built(plan, built.image, built.records, frozenset(layer.id for layer in needs.layers), taken)


def assembled(
    store: Store, plan: Plan, *, base_checked: bool = False, offline: bool = False, named: bool = True
) -> Built:
    """The image of a plan whose layers are all in the store. Raises UsageError `image-not-built` when one is not.

    named: as in `build_image`.
    """
    records = {}
    for layer in plan.layers:
        if layer.producer != "config":
            record = store.layer(layer.key)
            if record is None:
                raise UsageError(
                    f"there is no built image of {plan.recipe} on {plan.base} with these options",
                    id="image-not-built",
                    cause=f"layer {layer.id} is not in the store",
                )
            records[layer.id] = record
    image = assemble(plan, records, base_image(plan, store, offline=offline or base_checked))
    made = _record(plan, image, records, store)
    # Written in any case: `put` replaces a damaged blob.
    store.put(image.config)
    store.put(image.manifest)
    known = store.image(plan.key) or {}
    pushed = {"pushed": known["pushed"]} if "pushed" in known else {}
    if not named and (not known or known.get("named") is False):
        made["named"] = False
    if known == made | pushed:
        store.touch_image(plan.key)
    else:
        check_conflicts(plan, records, store)
        store.record_image(plan.key, made)
    return Built(plan, image, records, frozenset())


def _record(plan: Plan, image: Image, records: dict[str, LayerRecord], store: Store) -> dict[str, object]:
    """The record of an image: its base, and the inputs of each layer by digest, from the receipts.

    Raises PinError when a layer was made from other inputs than are locked for it.
    """
    layers = []
    for layer in plan.layers:
        record = records.get(layer.id)
        used: tuple[Used, ...] = ()
        if record is not None:
            assert record.receipt is not None
            used = used_of(store.read(record.receipt))
            check_inputs(layer, used)
        layers.append(
            {
                "id": layer.id,
                "key": layer.key,
                "params": {name: [*v] if isinstance(v, tuple) else v for name, v in layer.params.items()},
                "digest": record.digest if record is not None else None,
                "inputs": {item.file: item.sha256 for item in layer.inputs},
                "used": [asdict(item) for item in used],
            }
        )
    base = base_used(plan)
    return {
        "digest": image.digest,
        "config": image.config_digest,
        "recipe": plan.recipe,
        "base": plan.base,
        "profile": dict(plan.labels).get(PROFILE_LABEL),
        "base_image": {
            "reference": base.name,
            "manifest": base.digest,
            "config": image.base.manifest.config.digest,
        }
        if base is not None and image.base is not None
        else None,
        "layers": layers,
    }
