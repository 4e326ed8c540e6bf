"""The producer of `files` layers: unpacks locked inputs and streams them into the blob."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.attest.receipt import Ledger, receipt
from builder.digest import Digest
from builder.errors import InvalidError
from builder.oci.layerblob import write_layer
from builder.store.records import LayerRecord
from builder.store.store import Store
from builder.unpack.entry import UnpackError
from builder.unpack.spool import Spool
from builder.unpack.tree import entries

if TYPE_CHECKING:
    from builder.model.plan import PlannedLayer

Packed = tuple[LayerRecord, list[tuple[str, Digest]]]
"""A layer's record without its receipt, and the inputs that were read: file name and digest of the bytes."""


def pack(
    store: Store,
    layer: str,
    spec: Mapping[str, Any],
    *,
    compression: str,
    threads: int,
    progress: Callable[[int], None],
) -> Packed:
    """Make the blob of a layer, by its id and spec. Every input is hashed again as it is used.

    progress: called with the number of bytes of tar written, and with 0 before each input; it cancels by raising.
    Raises PinError, InvalidError or EngineError.
    """
    read: list[tuple[str, Digest]] = []

    def locate(item: Mapping[str, Any]) -> Path:
        progress(0)
        digest = Digest.from_hex(item["sha256"])
        store.verify(digest)
        read.append((item["file"], digest))
        return store.blob(digest)

    try:
        with Spool(str(store.tmp)) as spool:
            tree = entries(spec, locate, spool)
            return write_layer(store, tree, compression=compression, threads=threads, progress=progress), read
    except UnpackError as error:
        raise unpack_failed(layer, error) from error


def unpack_failed(layer: str, error: UnpackError) -> InvalidError:
    """The error of a layer whose inputs or files the unpacker refuses."""
    return InvalidError(str(error), id="layer-files-invalid", where=f"layer {layer}")


def with_receipt(store: Store, layer: PlannedLayer, record: LayerRecord, ledger: Ledger) -> LayerRecord:
    """The record of a layer with its receipt, which is put into the store. Raises PinError as `Ledger.close` does."""
    return replace(record, receipt=store.put(receipt(layer, record.digest, ledger.close())))
