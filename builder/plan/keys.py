"""Layer keys: layers with equal keys have equal bytes.

A key covers the inputs of a layer and the format of its blob. It does not cover the build platform, the engine, the
network or the number of jobs: a layer's bytes do not depend on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from builder.digest import Digest
from builder.model.canonical import fingerprint
from builder.model.plan import Plan, PlannedLayer
from builder.oci.format import format_id
from builder.unpack import FORMAT


def toolchain_digest(toolchains: Sequence[PlannedLayer]) -> str:
    """A hash over the toolchains of all build platforms, so that keys do not depend on the build platform."""
    return fingerprint([layer.spec for layer in sorted(toolchains, key=lambda layer: layer.id)])


def with_key(
    layer: PlannedLayer, *, platform: str, compression: str, toolchain: str | None, base_manifest: Digest | None
) -> PlannedLayer:
    """The layer with its key. toolchain: the digest of `toolchain_digest`, for layers that compile."""
    if layer.producer == "config":
        return layer
    parts: dict[str, Any] = {"blob": format_id(compression), "platform": platform, "producer": layer.producer}
    if layer.producer == "files":
        parts |= {"format": FORMAT, "spec": layer.spec}
    else:
        parts |= {
            "dockerfile": layer.dockerfile,
            "context": {path: Digest.of(data).hex for path, data in layer.context.items()},
            "inputs": {item.file: item.sha256 for item in layer.inputs},
            "toolchain": toolchain if layer.toolchain else None,
            "base": base_manifest if layer.reads_base else None,
        }
    return replace(layer, key=fingerprint(parts))


def with_toolchain_key(layer: PlannedLayer) -> PlannedLayer:
    """The root of a toolchain with its key; its id is `toolchain-ARCHITECTURE`."""
    platform = f"linux/{layer.id.removeprefix('toolchain-')}"
    return with_key(layer, platform=platform, compression="none", toolchain=None, base_manifest=None)


def keyed(plan: Plan) -> Plan:
    """The plan with the keys of its layers and toolchains, computed from their parts."""
    digest = toolchain_digest(plan.toolchains)
    return replace(
        plan,
        layers=tuple(
            with_key(
                layer,
                platform=plan.platform,
                compression=plan.compression,
                toolchain=digest,
                base_manifest=plan.base_manifest,
            )
            for layer in plan.layers
        ),
        toolchains=tuple(map(with_toolchain_key, plan.toolchains)),
    )
