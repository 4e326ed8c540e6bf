"""Several builders with stores and keys of their own, and a layer cache in a real registry."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from builder import __version__
from builder.attest.keys import signing_key
from builder.attest.receipt import receipt
from builder.attest.statement import LAYER
from builder.cache.blobs import put_layer
from builder.cache.entry import key_manifest, predicate
from builder.digest import Digest
from builder.model.plan import Plan, PlannedLayer
from builder.model.reference import Reference
from builder.oci.layerblob import write_layer
from builder.oci.manifest import OCI_MANIFEST
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from builder.registry.referrers import attach_all
from builder.registry.signed import signed_artifact
from builder.store.records import LayerRecord
from builder.store.store import Store
from builder.unpack.entry import Entry
from tests.support.cli import Cli, CommandResult
from tests.support.statements import new_key

RECIPE = ("--recipe", "tiny")


@dataclass
class Fleet:
    """Builders of the small image. repository: of the cache. Each has the key NAME.pem and the store NAME."""

    cli: Cli
    repository: str
    plan: Plan

    def __post_init__(self) -> None:
        self.client = Registry(config=RegistriesConfig(), credentials=Credentials())
        self.place = Reference.parse(self.repository)

    def key(self, name: str) -> Path:
        """The private key of a builder."""
        if not (self.cli.folder / f"{name}.pem").exists():
            new_key(self.cli.folder, name)
        return self.cli.folder / f"{name}.pem"

    def store(self, name: str) -> Store:
        return Store(self.cli.folder / f"store-{name}")

    def build(self, name: str, *words: str, **more: str) -> CommandResult:
        """`builder build` of one builder, with the cache."""
        store = str(self.cli.folder / f"store-{name}")
        return self.cli("build", *RECIPE, "--cache", self.repository, *words, **{"BUILDER_STORE": store, **more})

    def publish(self, *names: str) -> None:
        """Each builds all layers and publishes them."""
        for name in names:
            done = self.build(name, "--publish", "--key", str(self.key(name)))
            assert done.code == 0, done.err

    def trusting(self, *names: str, **rule: Any) -> tuple[str, str]:
        """`--policy` with a file that trusts these builders."""
        for name in names:
            self.key(name)
        path = self.cli.folder / "policy.yaml"
        path.write_text(yaml.safe_dump({"layers": {"keys": [f"{name}.pub" for name in names], **rule}}))
        return ("--policy", str(path))

    def layer(self, name: str = "placed") -> PlannedLayer:
        return next(layer for layer in self.plan.layers if layer.id == name)

    def other(self, name: str, key: str) -> LayerRecord:
        """Another layer in the store of a builder, complete with the receipt of this layer key."""
        store = self.store(name)
        data = b"something else\n"
        entries: Iterable[Entry] = [
            Entry("etc", "dir", 0o755, 0, "", None, "test"),
            Entry("etc/placed.conf", "file", 0o644, len(data), "", lambda: iter([data]), "test"),
        ]
        record = write_layer(store, entries)
        layer = replace(self.layer(), key=key)
        return replace(record, receipt=store.put(receipt(layer, record.digest, ())))

    def forge(self, name: str) -> None:
        """The store of a builder has other bytes for the layer `placed`: its machine is not reproducible."""
        key = self.layer().key
        self.store(name).record_layer(key, self.other(name, key))

    def sign(
        self, name: str, record: LayerRecord, key: str, *, under: str | None = None, day: str | None = None
    ) -> None:
        """A builder puts blobs of its store, signed, into the cache. under: the layer key to attach it to."""
        store = self.store(name)
        assert record.receipt is not None
        sizes = store.blob(record.listing).stat().st_size, store.blob(record.receipt).stat().st_size
        time = f"{day}T00:00:00Z" if day else datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        machine = {"builder": __version__, "architecture": "arm64"}
        said = predicate(key, "placed", record, sizes, machine=machine, finished=time)
        put_layer(self.client, self.place, store, said, record)
        manifest = key_manifest(under or key)
        subject = {"mediaType": OCI_MANIFEST, "digest": Digest.of(manifest), "size": len(manifest)}
        pem = signing_key(self.key(name).read_bytes(), None, name)
        artifact = signed_artifact(Digest.of(key_manifest(key)), LAYER, said, pem, record.digest)
        attach_all(self.client, self.place, subject, [artifact])


def states(done: CommandResult) -> dict[str, str]:
    """The state of each layer in the output of `build --json`."""
    return {layer["id"]: layer["state"] for layer in json.loads(done.out)["layers"] if layer["state"] != "config"}
