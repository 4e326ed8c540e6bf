"""The producer of `dockerfile` layers: an engine runs the stages, its tar is put in order here."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Event

from builder.engine.base import BuildRequest, Engine, Log, host_architecture
from builder.errors import EngineError, InvalidError
from builder.inputs.model import Input
from builder.model.plan import PlannedLayer
from builder.oci.blobs import remove
from builder.oci.layer import write_layer
from builder.oci.store import LayerRecord, Store
from builder.unpack.entry import UnpackError
from builder.unpack.spool import index
from builder.unpack.tree import normalise


def produce_dockerfile(
    store: Store,
    layer: PlannedLayer,
    engine: Engine,
    *,
    toolchain: LayerRecord | None,
    platform: str,
    compression: str,
    jobs: int,
    log: Log,
    progress: Callable[[int], None],
    cancel: Event | None = None,
) -> LayerRecord:
    """Run the layer's stages and make its blob from what comes out. Raises EngineError, InvalidError or PinError."""
    assert layer.dockerfile is not None
    work = store.scratch()
    try:
        context = work / "context"
        write_context(
            store, context, layer.inputs, layer.context, {host_architecture(): toolchain} if toolchain else {}
        )
        recipe = work / "Dockerfile"
        recipe.write_text(layer.dockerfile, "utf-8")
        request = BuildRequest(
            dockerfile=recipe,
            target=layer.id,
            context=context,
            platform=platform,
            jobs=jobs,
            work=work,
            network=layer.reads_base,
            cancel=cancel,
        )
        tar = work / "layer.tar"
        engine.build(request, tar, log)
        if not tar.exists():
            raise EngineError(f"{engine.name} wrote no files for {layer.id}", where=layer.id)
        tree = normalise(index(str(tar), layer.id), is_root=layer.root)
        if not tree:
            raise InvalidError("the layer's last stage holds no file", where=f"layer {layer.id}")
        return write_layer(store, tree, compression=compression, threads=jobs, progress=progress)
    except UnpackError as error:
        raise InvalidError(str(error), where=f"layer {layer.id}") from error
    finally:
        remove(work)


def write_context(
    store: Store,
    context: Path,
    inputs: Iterable[Input],
    files: dict[str, bytes],
    toolchains: dict[str, LayerRecord],
) -> None:
    """A build context: inputs/FILE, the layer folders' own files, toolchain-ARCH.tar.

    Inputs are hashed again and hard-linked from the store, or copied where links cannot reach.
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
        link(store.blob(record.digest), context / f"toolchain-{architecture}.tar")


def link(source: Path, target: Path) -> None:
    """A hard link, or a copy across file systems."""
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)
