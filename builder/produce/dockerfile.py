"""The producer of `dockerfile` layers: an engine runs the stages, and its tar is normalised here."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from threading import Event

from builder.attest.receipt import Ledger, Used
from builder.engine.interface import BuildRequest, Engine, LayoutError, LocalBase, Log, host_architecture
from builder.errors import EngineError, InvalidError
from builder.model.inputs import Input
from builder.model.plan import PlannedLayer
from builder.oci.layerblob import write_layer
from builder.produce.files import unpack_failed, with_receipt
from builder.store.blobs import hash_of
from builder.store.records import LayerRecord
from builder.store.removal import remove
from builder.store.store import Store
from builder.unpack.entry import UnpackError
from builder.unpack.spool import index
from builder.unpack.tree import normalise


def produce_dockerfile(
    store: Store,
    layer: PlannedLayer,
    engine: Engine,
    *,
    toolchain: tuple[str, LayerRecord] | None,
    base: Used | None = None,
    local_base: Callable[[Path], LocalBase | None] = lambda folder: None,
    may_pull: bool = True,
    platform: str,
    compression: str,
    jobs: int,
    log: Log,
    progress: Callable[[int], None],
    cancel: Event | None = None,
) -> LayerRecord:
    """Run the layer's stages, make the layer's blob from the engine's output, and its receipt from the inputs.

    toolchain: the root that stages start from, with its id. base: the image that a layer may read. local_base:
    puts that image into a folder; None when the engine must pull it. may_pull: whether it may.
    Raises EngineError, InvalidError or PinError.
    """
    assert layer.dockerfile is not None
    roots = {host_architecture(): toolchain[1]} if toolchain else {}
    others = [Used("toolchain", toolchain[0], toolchain[1].digest)] if toolchain else []
    if layer.reads_base and base is not None:
        others.append(base)
    ledger = Ledger(layer, others)
    work = store.scratch()
    try:
        context = work / "context"
        write_context(store, context, layer.inputs, layer.context, roots)
        recipe = work / "Dockerfile"
        recipe.write_text(layer.dockerfile, "utf-8")
        request = BuildRequest(
            dockerfile=recipe,
            target=layer.id,
            context=context,
            platform=platform,
            jobs=jobs,
            work=work,
            base=(local := local_base(work / "base") if layer.reads_base else None),
            pull=base.name if layer.reads_base and base is not None and local is None else None,
            cancel=cancel,
        )
        tar = work / "layer.tar"
        try:
            engine.build(request, tar, log)
        except LayoutError as error:
            if not may_pull or base is None:
                raise
            log(str(error))
            engine.build(replace(request, base=None, pull=base.name), tar, log)
        if not tar.exists():
            raise EngineError(f"{engine.name} wrote no files for {layer.id}", id="engine-no-output", where=layer.id)
        tree = normalise(index(str(tar), layer.id), is_root=layer.root)
        if not tree:
            raise InvalidError("the layer's last stage holds no file", id="layer-empty", where=f"layer {layer.id}")
        _read(store, layer, context, ledger)
        for item in others:
            ledger.read(item)  # verified by `write_context`; the base by the engine, which pulls it by this digest
        record = write_layer(store, tree, compression=compression, threads=jobs, progress=progress)
        return with_receipt(store, layer, record, ledger)
    except UnpackError as error:
        raise unpack_failed(layer.id, error) from error
    finally:
        remove(work)


def _read(store: Store, layer: PlannedLayer, context: Path, ledger: Ledger) -> None:
    """Record the files of the context in the ledger, hashed after the engine ran: none may have changed in between."""
    for item in layer.inputs:
        store.verify(item.digest)  # the same file, or the file that it was copied from
        ledger.read_input(item.file, hash_of(context / "inputs" / item.file))
    for path in layer.context:
        ledger.read(Used("file", path, hash_of(context / path)))


def write_context(
    store: Store,
    context: Path,
    inputs: Iterable[Input],
    files: dict[str, bytes],
    toolchains: dict[str, LayerRecord],
) -> None:
    """A build context: inputs/FILE, the layer folders' own files, toolchain-ARCH.tar.

    Inputs and toolchains are hashed again and hard-linked from the store, or copied where links cannot reach.
    """
    (context / "inputs").mkdir(parents=True, exist_ok=True)
    for item in inputs:
        store.verify(item.digest)
        link(store.blob(item.digest), context / "inputs" / item.file)
    for path, data in files.items():
        target = context / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(0o644)
    for architecture, record in toolchains.items():
        store.verify(record.digest)
        link(store.blob(record.digest), context / f"toolchain-{architecture}.tar")


def link(source: Path, target: Path) -> None:
    """A hard link, or a copy across file systems."""
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)
