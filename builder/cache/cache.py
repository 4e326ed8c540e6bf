"""LayerCache: looks layers up in a repository of a registry, takes those that are vouched for, and publishes layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from builder import __version__
from builder.attest.keys import PublicKey, SigningKey
from builder.attest.policy import RebuiltRule
from builder.attest.statement import LAYER
from builder.cache.blobs import put_empty, put_layer, take_layer
from builder.cache.entry import STATEMENT, key_manifest, predicate
from builder.cache.verdict import Found, sort_out
from builder.digest import Digest
from builder.engine.interface import host_architecture
from builder.errors import NetworkError, UsageError
from builder.events import Event, Listener
from builder.model.plan import PlannedLayer
from builder.model.reference import Reference
from builder.oci.manifest import OCI_MANIFEST
from builder.parallel import every
from builder.registry.client import Registry
from builder.registry.referrers import attach_all
from builder.registry.signed import signed_artifact, signed_statements
from builder.retry import RetryPolicy
from builder.store.records import LayerRecord
from builder.store.store import Store

_AT_ONCE = 4
"""Layers that are moved at the same time."""
_FRESH = 30
"""Days after which a layer that is built again is signed again."""


def cache_place(text: str) -> Reference:
    """The repository that `--cache` names. Raises UsageError."""
    place = Reference.parse(text)
    if place.tag or place.digest:
        raise UsageError(
            f"{text!r} names one image",
            id="cache-names-image",
            cause="a layer cache is a whole repository",
            next="leave out tag and digest",
        )
    return place


@dataclass
class LayerCache:
    """A layer cache in one repository.

    rule: who must have built a layer before it is taken; None: the cache only tells what others got. keys: of this
    rule, by the names in it. notes: what the user should know after the build.
    """

    place: Reference
    rule: RebuiltRule | None = None
    keys: Sequence[PublicKey] = ()
    client: Registry = field(default_factory=Registry)
    asking: Registry = field(default_factory=lambda: Registry(retry_policy=RetryPolicy(attempts=2, pause=0.2)))
    """For lookups: a registry that does not answer must not delay a build."""
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """REGISTRY/REPOSITORY."""
        return f"{self.place.registry}/{self.place.repository}"

    def look_up(self, layers: Sequence[PlannedLayer]) -> dict[str, Found]:
        """What the cache says of layers, by id; nothing when the registry does not answer, which is a warning.

        Raises DiffersError when builders of the policy disagree about one of them.
        """
        now = datetime.now(UTC)

        def ask(layer: PlannedLayer) -> Found:
            about = Digest.of(key_manifest(layer.key))
            said = signed_statements(self.asking, self.place, about, self.keys, STATEMENT, strangers=True)
            return sort_out(layer.key, said, self.rule, now, f"layer {layer.id} in {self.name}")

        try:
            found = every(ask, layers)
        except NetworkError as error:
            why = f"{error.what}: {error.cause}" if error.cause else error.what
            self.notes.append(f"warning: the cache {self.name} was not asked: {why}")
            return {}
        for layer, item in zip(layers, found, strict=True):
            self.notes += [f"warning: layer {layer.id}: {text}" for text in item.ignored]
        return {layer.id: item for layer, item in zip(layers, found, strict=True)}

    def take(
        self, store: Store, layers: Sequence[PlannedLayer], found: dict[str, Found], listener: Listener
    ) -> frozenset[str]:
        """Download the layers that are vouched for into the store; returns their ids. Raises BuilderError."""
        trusted = [layer for layer in layers if layer.id in found and found[layer.id].trusted]
        taken = every(lambda layer: self._take(store, layer, found[layer.id], listener), trusted, _AT_ONCE)
        return frozenset(layer.id for layer, is_here in zip(trusted, taken, strict=True) if is_here)

    def _take(self, store: Store, layer: PlannedLayer, found: Found, listener: Listener) -> bool:
        entry = found.trusted
        assert entry is not None
        size = entry.layer.size

        def watch(count: int) -> None:
            listener(Event(layer.id, "fetching", count, size))

        watch(0)
        try:
            with store.exclusive(layer.key, lambda: listener(Event(layer.id, "waiting"))):
                if store.layer(layer.key) is not None:
                    return False
                where = f"layer {layer.id} in {self.name}"
                if not take_layer(self.client, self.place, store, entry, layer.key, where, watch):
                    self.notes.append(f"warning: layer {layer.id}: the cache has lost a blob of it")
                    return False
                store.record_layer(layer.key, replace(entry.layer, origin=self.name))
        except NetworkError as error:
            self.notes.append(f"warning: layer {layer.id} was not taken from the cache: {error.what}")
            return False
        listener(Event(layer.id, "done", size, size))
        return True

    def compare(self, layers: Sequence[PlannedLayer], found: dict[str, Found], store: Store) -> None:
        """Compare the layers in the store with what others say. Raises DiffersError."""
        for layer in layers:
            record = store.layer(layer.key)
            if layer.id in found and record is not None:
                said = found[layer.id].compare(record, f"layer {layer.id} in {self.name}")
                self.notes += [f"layer {layer.id}: {said}"] if said and not record.origin else []

    def publish(
        self, store: Store, layers: Sequence[PlannedLayer], key: SigningKey, listener: Callable[[str, str], None]
    ) -> None:
        """Publish the layers that this store's user built, signed. Layers that came from a cache prove nothing new.

        listener: receives the id of each layer and the outcome. Raises NetworkError, PinError, and DiffersError when
        this key has signed another layer under the same key.
        """

        def put(layer: PlannedLayer) -> None:
            record = store.layer(layer.key)
            if record is None or record.origin:
                listener(layer.id, "not built here")
                return
            listener(layer.id, "published" if self._publish(store, layer, record, key) else "already there")

        # Once, before layers are put in parallel: writing one blob twice at a time confuses docker-registry.
        put_empty(self.client, self.place)
        every(put, layers, _AT_ONCE)

    def _publish(self, store: Store, layer: PlannedLayer, record: LayerRecord, key: SigningKey) -> bool:
        manifest = key_manifest(layer.key)
        rule = RebuiltRule(keys=(key.name,), days=_FRESH)
        said = signed_statements(self.client, self.place, Digest.of(manifest), [key.public], STATEMENT)
        own = sort_out(layer.key, said, rule, datetime.now(UTC), f"layer {layer.id} in {self.name}")
        own.compare(record, f"layer {layer.id} in {self.name}")
        if own.entries:
            return False
        assert record.receipt is not None
        sizes = (store.blob(record.listing).stat().st_size, store.blob(record.receipt).stat().st_size)
        built = datetime.fromtimestamp(store.built_at(layer.key), UTC)
        about = predicate(
            layer.key,
            layer.id,
            record,
            sizes,
            machine={"builder": __version__, "architecture": host_architecture()},
            finished=built.strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        anchor = put_layer(self.client, self.place, store, about, record)
        subject = {"mediaType": OCI_MANIFEST, "digest": anchor, "size": len(manifest)}
        attach_all(self.client, self.place, subject, [signed_artifact(anchor, LAYER, about, key, record.digest)])
        return True
