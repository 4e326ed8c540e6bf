"""Writes a registry base from a mirror as a local OCI layout, for an engine whose layer reads its base."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from builder.attest.receipt import base_used
from builder.engine.interface import LocalBase
from builder.errors import BuilderError, NetworkError, PinError
from builder.mirror.source import MirrorSource, mirror_command
from builder.model.plan import Plan
from builder.oci.layout import list_entry
from builder.oci.manifest import Descriptor, parse_manifest
from builder.store.blobs import Blobs
from builder.store.store import Store


def local_base(
    plan: Plan, store: Store, source: MirrorSource | None, folder: Path, *, offline: bool, check: Callable[[], None]
) -> LocalBase | None:
    """Write the base of a plan to `folder`: manifest and config from the store, layers from the mirror.

    check: called between chunks; it may raise to cancel. Returns None when there is no mirror, or it lacks the layers,
    and the engine may pull the base itself. Raises PinError or NetworkError instead when `offline`.
    """
    used = base_used(plan)
    assert used is not None
    manifest = store.read(used.digest)
    found = parse_manifest(manifest, where=used.name)
    if source is None:
        if offline:
            raise _no_mirror(plan)
        return None
    blobs = Blobs(folder, folder / "tmp")
    try:
        for path in (blobs.tmp, folder / "blobs" / "sha256"):
            path.mkdir(parents=True)
        for layer in found.layers:
            _copy_layer(source, blobs, layer, check)
    except (PinError, NetworkError, OSError) as error:
        if offline:
            raise _not_in_mirror(plan, source, error) from error
        reason = error.what if isinstance(error, BuilderError) else str(error)
        source.report_missing(f"the layers of base {plan.base}", reason)
        return None
    config = found.config.digest
    for data in (manifest, store.read(config)):
        with blobs.writer() as writer:
            writer.write(data)
            writer.commit()
    list_entry(folder, used.digest, len(manifest), "base", mediaType=found.media_type)
    # With these two files the folder of blobs is also an image of containers/image's transport `dir:`.
    (folder / "blobs" / "sha256" / "manifest.json").write_bytes(manifest)
    (folder / "blobs" / "sha256" / "version").write_text("Directory Transport Version: 1.1\n")
    return LocalBase(used.name, used.digest, config, folder)


def _copy_layer(source: MirrorSource, blobs: Blobs, layer: Descriptor, check: Callable[[], None]) -> None:
    if blobs.has(layer.digest):
        return
    file = source.backend.file(layer.digest)
    if file is not None and source.backend.has(layer.digest, layer.size):
        blobs.add_file(file, layer.digest, lambda size: check())
        return

    def chunks() -> Iterator[bytes]:
        for chunk in source.backend.read(layer.digest, layer.size):
            check()
            yield chunk

    blobs.fill(layer.digest, chunks)


def _no_mirror(plan: Plan) -> PinError:
    return PinError(
        f"a layer reads files of base {plan.base}, and this is offline without a mirror",
        id="base-layers-offline",
        cause=f"the layers of base {plan.base} are not on this machine",
        next=_mirror_next(plan, "DIR"),
    )


def _not_in_mirror(plan: Plan, source: MirrorSource, error: BuilderError | OSError) -> BuilderError:
    what = f"a layer reads files of base {plan.base}, and the mirror cannot serve its layers offline"
    cause = error.what if isinstance(error, BuilderError) else str(error)
    next = _mirror_next(plan, source.name)
    if isinstance(error, PinError):
        return PinError(what, id="mirror-base-layers-missing", where=source.name, cause=cause, next=next)
    return NetworkError(what, id="mirror-base-layers-unreadable", where=source.name, cause=cause, next=next)


def _mirror_next(plan: Plan, name: str) -> str:
    command = mirror_command(name, "--base-layers", "--recipe", plan.recipe, "--base", plan.base)
    return f"where there is a network: {command}"
