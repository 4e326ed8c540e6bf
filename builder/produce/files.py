"""The producer of `files` layers: unpacks locked inputs and streams them into the blob."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from builder.attest.receipt import Ledger, receipt
from builder.digest import Digest
from builder.errors import InvalidError
from builder.model.plan import PlannedLayer
from builder.oci.layerblob import write_layer
from builder.store.records import LayerRecord
from builder.store.store import Store
from builder.unpack.entry import UnpackError
from builder.unpack.spool import Spool
from builder.unpack.tree import entries


def produce_files(
    store: Store, layer: PlannedLayer, *, compression: str, threads: int, progress: Callable[[int], None]
) -> LayerRecord:
    """Make the layer's blob and its receipt. Every input is hashed again as it is used, and must be the locked one.

    progress: called with the number of bytes of tar written, and with 0 before each input; it cancels by raising.
    Raises PinError, InvalidError or EngineError.
    """
    assert layer.spec is not None
    ledger = Ledger(layer)

    def locate(item: Mapping[str, Any]) -> Path:
        progress(0)
        used = replace(ledger.file(item["file"]), digest=Digest.from_hex(item["sha256"]))
        store.verify(used.digest)
        ledger.read(used)
        return store.blob(used.digest)

    try:
        with Spool(str(store.tmp)) as spool:
            tree = entries(layer.spec, locate, spool)
            record = write_layer(store, tree, compression=compression, threads=threads, progress=progress)
        return with_receipt(store, layer, record, ledger)
    except UnpackError as error:
        raise unpack_failed(layer, error) from error


def unpack_failed(layer: PlannedLayer, error: UnpackError) -> InvalidError:
    """The error of a layer whose inputs or files the unpacker refuses."""
    return InvalidError(str(error), id="layer-files-invalid", where=f"layer {layer.id}")


def with_receipt(store: Store, layer: PlannedLayer, record: LayerRecord, ledger: Ledger) -> LayerRecord:
    """The record of a layer with its receipt, which is put into the store. Raises PinError as `Ledger.close` does."""
    return replace(record, receipt=store.put(receipt(layer, record.digest, ledger.close())))
