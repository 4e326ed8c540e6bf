"""Computes the needs of a build before it starts: missing layers, bytes to download, disk space."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from builder.engine.interface import host_architecture
from builder.errors import EngineError
from builder.model.plan import Plan, PlannedLayer
from builder.store.store import Store

DEB_GROWTH = 5
"""Unpacked bytes for each byte of a Debian package, rounded up (measured 4.3 over the root of trixie)."""

ENGINE_SPACE = 3_000_000_000
"""Bytes an engine needs while it compiles: its copy of the toolchain, the objects, the result (measured with NCCL)."""


@dataclass(frozen=True)
class Needs:
    """What a build needs; sizes in bytes."""

    layers: tuple[PlannedLayer, ...]
    download: int
    store: int
    temporary: int
    engine: bool


def survey(store: Store, *plans: Plan) -> Needs:
    """The missing layers of plans, each once, and their needs. Raises EngineError without a toolchain for this machine.

    The plans are built one after the other.
    """
    layers = {layer.key: layer for plan in plans for layer in plan.layers if layer.producer != "config"}
    missing = [layer for layer in layers.values() if store.layer(layer.key) is None]
    roots: dict[str, PlannedLayer] = {}
    if any(layer.toolchain for layer in missing):
        own = f"toolchain-{host_architecture()}"
        roots = {layer.key: layer for plan in plans for layer in plan.toolchains if layer.id == own}
        if not roots:
            raise EngineError(f"there is no toolchain for {host_architecture()} machines", id="toolchain-missing")
    return _needs(store, [layer for layer in roots.values() if store.layer(layer.key) is None], missing)


def survey_roots(store: Store, plan: Plan) -> Needs:
    """The needs of the toolchain roots of all build platforms."""
    return _needs(store, [layer for layer in plan.toolchains if store.layer(layer.key) is None], ())


def _needs(store: Store, roots: Sequence[PlannedLayer], layers: Sequence[PlannedLayer]) -> Needs:
    missing = [*roots, *layers]
    inputs = {item.digest: item for layer in missing for item in layer.inputs}
    debs = [sum(item.size for item in layer.inputs if item.kind == "deb") for layer in missing]
    engine = any(layer.producer == "dockerfile" for layer in layers)
    return Needs(
        layers=(*roots, *layers),
        download=sum(item.size for item in inputs.values() if not store.has(item.digest)),
        store=sum(item.size for layer in layers for item in layer.inputs)
        + sum(DEB_GROWTH * sum(item.size for item in layer.inputs) for layer in roots),
        temporary=max([0, *debs]) * DEB_GROWTH + (ENGINE_SPACE if engine else 0),
        engine=engine,
    )


def check_space(store: Store, needs: Needs) -> None:
    """Raises EngineError when the disk of the store cannot hold the build."""
    free = shutil.disk_usage(store.root).free
    wanted = needs.download + needs.store + needs.temporary
    if wanted > free:
        raise EngineError(
            f"not enough disk space: {wanted / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free",
            id="disk-space-short",
            where=str(store.root),
            next="free some space (builder gc), or point BUILDER_STORE at a larger disk",
        )
