"""Writes the build context of a rendered Dockerfile: all files that its stages read, and no path of this machine."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import NoReturn

import builder.unpack
from builder.errors import UsageError
from builder.events import Event, Listener
from builder.inputs.fetch import fetch
from builder.mirror.source import MirrorSource
from builder.model.inputs import FetchEvent
from builder.model.plan import Plan
from builder.produce.build import Builder
from builder.produce.dockerfile import write_context
from builder.produce.survey import check_space, survey_roots
from builder.store.blobs import disk_error
from builder.store.records import LayerRecord
from builder.store.removal import remove
from builder.store.store import Store


def write_full_context(
    store: Store,
    plan: Plan,
    dockerfile: str,
    folder: Path,
    *,
    offline: bool,
    listener: Listener,
    source: MirrorSource | None = None,
) -> None:
    """Write Dockerfile, inputs (hard links into the store), descriptions, the unpacker and both toolchain roots.

    folder: must not exist, or must be empty; it appears when it is complete. Raises UsageError, PinError,
    NetworkError or EngineError.
    """
    folder = folder.absolute()
    if not folder.name or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise UsageError(
            "is not an empty folder",
            id="context-not-empty",
            where=str(folder),
            next="choose a new folder: --context DIR",
        )
    try:
        # Checked before the downloads, which take long.
        folder.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder.parent).close()
    except OSError as error:
        raise UsageError(
            f"cannot create the folder: {error.strerror}",
            id="context-not-writable",
            where=str(folder),
            next="choose another folder: --context DIR",
        ) from None
    inputs = {item.digest: item for layer in plan.layers for item in layer.inputs}
    received: dict[str, int] = {}
    total = sum(item.size for item in inputs.values())

    def progress(event: FetchEvent) -> None:
        received[event.name] = event.received
        listener(Event("inputs", "fetching", sum(received.values()), total))

    fetch(store, list(inputs.values()), offline=offline, progress=progress, source=source)
    listener(Event("inputs", "done", total, total))
    toolchains = _toolchains(store, plan, offline=offline, listener=listener, source=source)
    files = {path: data for layer in plan.layers for path, data in layer.context.items()}
    for layer in plan.layers:
        if layer.spec is not None:
            files[f"specs/{layer.id}.json"] = json.dumps(layer.spec, indent=1).encode()
    for module in sorted(Path(builder.unpack.__file__).parent.glob("*.py")):
        files[f"unpack/{module.name}"] = module.read_bytes()
    files["Dockerfile"] = dockerfile.encode()
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        remove(partial)
        partial.mkdir()  # new: a link that somebody else puts there would lead the files elsewhere
        write_context(store, partial, inputs.values(), files, toolchains)
        if folder.exists():
            folder.rmdir()
        partial.rename(folder)
    except OSError as error:
        raise disk_error(error, folder) from error
    finally:
        remove(partial)


def _toolchains(
    store: Store, plan: Plan, *, offline: bool, listener: Listener, source: MirrorSource | None
) -> dict[str, LayerRecord]:
    needs = survey_roots(store, plan)
    check_space(store, needs)
    Builder(
        store, plan, engine=_no_engine, offline=offline, listener=listener, log=lambda line: None, source=source
    ).run(needs)
    found = {}
    for layer in plan.toolchains:
        record = store.layer(layer.key)
        assert record is not None
        found[layer.id.removeprefix("toolchain-")] = record
    return found


def _no_engine() -> NoReturn:
    raise AssertionError("roots are unpacked without an engine")
