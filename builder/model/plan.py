"""The plan: recipe, lock and base, resolved. A pure value that prints as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from builder.digest import Digest
from builder.model.canonical import fingerprint
from builder.model.check import Check
from builder.model.inputs import Input


@dataclass(frozen=True)
class Variable:
    """An environment variable of the image. prepend: put before the inherited value, joined by a colon."""

    name: str
    value: str
    prepend: bool = False
    origin: str = ""


@dataclass(frozen=True)
class PlannedLayer:
    """One layer of the image.

    id: unique in the image, the name of its build stage. spec: of a `files` layer, the description to unpack.
    dockerfile: of a `dockerfile` layer, the whole text that an engine runs; stages: its own part of it. context: the
    layer folder's files, by path in the build context. key: names the layer's bytes; empty for a layer without files.
    """

    id: str
    layer: str
    title: str
    producer: Literal["files", "dockerfile", "config"]
    root: bool
    key: str
    params: dict[str, Any]
    inputs: tuple[Input, ...] = ()
    spec: dict[str, Any] | None = None
    dockerfile: str | None = None
    stages: str = ""
    context: dict[str, bytes] = field(default_factory=dict)
    toolchain: bool = False
    reads_base: bool = False
    env: tuple[Variable, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    replaces: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What is built; nothing about the machine, the engine or the number of jobs."""

    recipe: str
    title: str
    base: str
    family: str
    platform: str
    base_image: str | None
    base_manifest: Digest | None
    base_index: Digest | None
    created: str
    compression: str
    layers: tuple[PlannedLayer, ...]
    toolchains: tuple[PlannedLayer, ...]
    env: tuple[Variable, ...]
    entrypoint: tuple[str, ...] | None
    command: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    compatible: tuple[str, ...] = ()
    """Other bases that the recipe can be built on, by name, alias or family."""
    glibc: str | None = None
    """The glibc version in the base's file, for checks when the base's layers are not in the store."""

    @property
    def key(self) -> str:
        """Names the whole image: equal plans make equal images."""
        return fingerprint(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data, without file contents."""
        return {
            "recipe": self.recipe,
            "title": self.title,
            "platform": self.platform,
            "base": {
                "name": self.base,
                "family": self.family,
                "image": self.base_image,
                "manifest": self.base_manifest,
                "index": self.base_index,
            },
            "created": self.created,
            "compression": self.compression,
            "layers": [_layer_json(layer) for layer in self.layers],
            "toolchains": {layer.id: layer.key for layer in self.toolchains if any(i.toolchain for i in self.layers)},
            "env": [[item.name, item.value, "prepend" if item.prepend else "set"] for item in self.env],
            "entrypoint": list(self.entrypoint) if self.entrypoint is not None else None,
            "cmd": list(self.command),
            "labels": dict(self.labels),
            "notes": list(self.notes),
        }


def _layer_json(layer: PlannedLayer) -> dict[str, Any]:
    return {
        "id": layer.id,
        "layer": layer.layer,
        "title": layer.title,
        "producer": layer.producer,
        "key": layer.key,
        "params": layer.params,
        "inputs": [{"kind": i.kind, "name": i.name, "sha256": i.sha256, "size": i.size} for i in layer.inputs],
        "replaces": list(layer.replaces),
    }
