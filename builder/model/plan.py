"""The plan: recipe, lock and base, resolved. A pure value that prints as JSON.

The types of the fields are those of a bundle, which a stranger may have written (`builder/plan/bundle.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from builder.digest import Digest
from builder.model.canonical import fingerprint
from builder.model.check import Check
from builder.model.common import Boolean, EnvName, LabelName, Line, Name, RelativePath, Sha256, Timestamp, Version
from builder.model.inputs import Input

EXACT = ConfigDict(extra="forbid", strict=True, ser_json_bytes="base64", val_json_bytes="base64")
"""How a value is read from a bundle."""


@dataclass(frozen=True)
class Variable:
    """An environment variable of the image. prepend: put before the inherited value, joined by a colon."""

    __pydantic_config__: ClassVar[ConfigDict] = EXACT

    name: EnvName
    value: Line
    prepend: Boolean = False
    origin: Line = ""


@dataclass(frozen=True)
class PlannedLayer:
    """One layer of the image.

    id: unique in the image, the name of its build stage. spec: of a `files` layer, the description to unpack.
    dockerfile: of a `dockerfile` layer, the whole text that an engine runs; stages: its own part of it. context: the
    layer folder's files, by path in the build context. key: names the layer's bytes; empty for a layer without files.
    """

    __pydantic_config__: ClassVar[ConfigDict] = EXACT

    id: Name
    layer: Name
    title: Line
    producer: Literal["files", "dockerfile", "config"]
    root: Boolean
    key: Sha256 | Literal[""]
    params: dict[str, Any]
    inputs: tuple[Input, ...] = ()
    spec: dict[str, Any] | None = None
    dockerfile: str | None = None
    stages: str = ""
    context: dict[RelativePath, bytes] = field(default_factory=dict)
    toolchain: Boolean = False
    reads_base: Boolean = False
    env: tuple[Variable, ...] = ()
    labels: tuple[tuple[LabelName, Line], ...] = ()
    replaces: tuple[Line, ...] = ()
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What is built; nothing about the machine, the engine or the number of jobs.

    toolchains: their roots, one for each build platform; a plan whose layers are all `config` may have none.
    """

    __pydantic_config__: ClassVar[ConfigDict] = EXACT

    recipe: Name
    title: Line
    base: Name
    family: Name
    platform: Line
    base_image: Line | None
    base_manifest: Digest | None
    base_index: Digest | None
    created: Timestamp
    compression: Name
    layers: tuple[PlannedLayer, ...]
    toolchains: tuple[PlannedLayer, ...]
    env: tuple[Variable, ...]
    entrypoint: tuple[Line, ...] | None
    command: tuple[Line, ...]
    labels: tuple[tuple[LabelName, Line], ...]
    checks: tuple[Check, ...] = ()
    notes: tuple[Line, ...] = ()
    compatible: tuple[Name, ...] = ()
    """Other bases that the recipe can be built on, by name, alias or family."""
    glibc: Version | None = None
    """The glibc version in the base's file, for checks when the base's layers are not in the store."""

    @property
    def key(self) -> str:
        """Names the whole image: equal plans make equal images."""
        return fingerprint(self.to_json())

    @property
    def used_toolchains(self) -> tuple[PlannedLayer, ...]:
        """The roots of the toolchain; none when no layer compiles."""
        return self.toolchains if any(layer.toolchain for layer in self.layers) else ()

    def only(self, layers: Collection[str]) -> Plan:
        """The plan with these layers alone, by id."""
        return replace(self, layers=tuple(layer for layer in self.layers if layer.id in layers))

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
            "toolchains": {layer.id: layer.key for layer in self.used_toolchains},
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
