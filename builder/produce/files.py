"""The producer of `files` layers: locked inputs are unpacked in this process and streamed into the blob."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from builder.errors import InvalidError, PinError
from builder.model.plan import PlannedLayer
from builder.oci.layer import write_layer
from builder.oci.store import LayerRecord, Store
from builder.unpack.entry import UnpackError
from builder.unpack.spool import Spool
from builder.unpack.tree import entries

_one_spool = Lock()
"""Debian packages need temporary space for their contents; one root at a time keeps that below a gigabyte."""


def produce_files(
    store: Store, layer: PlannedLayer, *, compression: str, threads: int, progress: Callable[[int], None]
) -> LayerRecord:
    """Make the layer's blob. Every input is hashed again as it is used, and must be one of the layer's locked inputs.

    progress: told how many bytes of tar were written. Raises PinError, InvalidError or EngineError.
    """
    assert layer.spec is not None
    if layer.spec["debs"]:
        with _one_spool:
            return _produce(store, layer, compression, threads, progress)
    return _produce(store, layer, compression, threads, progress)


def _produce(
    store: Store, layer: PlannedLayer, compression: str, threads: int, progress: Callable[[int], None]
) -> LayerRecord:
    assert layer.spec is not None
    locked = {item.file: item.sha256 for item in layer.inputs}

    def locate(item: Mapping[str, Any]) -> Path:
        if locked.get(item["file"]) != item["sha256"]:
            raise PinError(f"{item['file']} is not what the lock says", where=layer.id)
        digest = f"sha256:{item['sha256']}"
        store.verify(digest)
        return store.blob(digest)

    try:
        with Spool(str(store.tmp)) as spool:
            tree = entries(layer.spec, locate, spool)
            return write_layer(store, tree, compression=compression, threads=threads, progress=progress)
    except UnpackError as error:
        raise InvalidError(str(error), where=f"layer {layer.id}") from error
