"""A registry base from a mirror, put where an engine can read it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from builder.attest.receipt import base_used
from builder.engine.base import LocalBase
from builder.errors import BuilderError, NetworkError, PinError
from builder.mirror.source import MirrorSource, mirror_command
from builder.model.plan import Plan
from builder.oci.layout import begin, list_entry
from builder.oci.manifest import parse_manifest
from builder.store.blobs import Blobs
from builder.store.store import Store


def local_base(
    plan: Plan, store: Store, source: MirrorSource | None, folder: Path, *, offline: bool, check: Callable[[], None]
) -> LocalBase | None:
    """Write the base of a plan, whose manifest and config are in the store, with its layers from the mirror.

    check: called again and again; it may raise. Returns None when an engine may pull the base itself and has to, as
    there is no mirror or it lacks the layers. Raises PinError or NetworkError when it must not, being `offline`.
    """
    used = base_used(plan)
    assert used is not None
    manifest = store.read(used.digest)
    found = parse_manifest(manifest, where=used.name)
    parsed = found.json
    try:
        if source is None:
            raise PinError(f"the layers of base {plan.base} are not here, and this is offline")
        blobs = Blobs(folder, folder / "tmp")
        for made in (blobs.tmp, folder / "blobs" / "sha256"):
            made.mkdir(parents=True)
        for layer in parsed["layers"]:
            _take(source, blobs, layer, check)
    except (PinError, NetworkError, OSError) as error:
        if offline:
            raise _away(plan, source, error) from error
        if source is not None:
            source.lacks(
                f"the layers of base {plan.base}", error.what if isinstance(error, BuilderError) else str(error)
            )
        return None
    config = parsed["config"]["digest"]
    for data in (manifest, store.read(config)):
        with blobs.writer() as writer:
            writer.write(data)
            writer.commit()
    begin(folder)
    list_entry(folder, used.digest, len(manifest), "base", mediaType=found.media_type)
    # What makes the folder of blobs a `dir:` image.
    (folder / "blobs" / "sha256" / "manifest.json").write_bytes(manifest)
    (folder / "blobs" / "sha256" / "version").write_text("Directory Transport Version: 1.1\n")
    return LocalBase(used.name, used.digest, config, folder)


def _take(source: MirrorSource, blobs: Blobs, layer: dict[str, Any], check: Callable[[], None]) -> None:
    digest = layer["digest"]
    if blobs.has(digest):
        return
    if (file := source.place.file(digest)) is not None:
        blobs.adopt(file, digest, lambda size: check())
        return
    with blobs.writer() as writer:
        for chunk in source.place.read(digest, layer["size"]):
            check()
            writer.write(chunk)
        writer.commit(digest)


def _away(plan: Plan, source: MirrorSource | None, error: BuilderError | OSError) -> BuilderError:
    kind = type(error) if isinstance(error, PinError | NetworkError) else NetworkError
    name = source.name if source is not None else "DIR"
    return kind(
        f"a layer reads files of base {plan.base}, and its layers cannot be had offline",
        where=source.name if source is not None else "",
        cause=error.what if isinstance(error, BuilderError) else str(error),
        next="where there is a network: "
        + mirror_command(name, "--base-layers", "--recipe", plan.recipe, "--base", plan.base),
    )
