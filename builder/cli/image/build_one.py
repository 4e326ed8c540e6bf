"""Build one plan: build the image, write it to a layout, load it into docker, print the summary."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.attest.keys import SigningKey
from builder.cache.cache import LayerCache
from builder.cli.image.built import image_name, load_into_docker
from builder.cli.output import counted, say, size
from builder.cli.progress import Progress
from builder.cli.proof.cache import publish_layers, say_cached
from builder.engine.select import select_engine
from builder.mirror.source import MirrorSource
from builder.model.plan import Plan
from builder.oci.layout import write_layout
from builder.produce.image import Built, build_image
from builder.produce.survey import Needs
from builder.registry.push import base_blobs
from builder.store.images import earlier_seconds
from builder.store.store import Store


@dataclass(frozen=True)
class BuildRequest:
    """How to build, and what to do with the image. engine, builder: as in `select_engine`.

    mirror: where to take inputs from first. cache: where to look up layers. publish: the key that signs the layers
    which were built here, to publish them there. jobs: None for all processors. layout: folder of --output.
    load: load the image into docker. tag: the image's name there and in the layout. brief: print only new layers.
    named: as in `build_image`.
    """

    engine: str | None
    builder: Sequence[str] | None
    offline: bool
    mirror: MirrorSource | None
    jobs: int | None
    verbose: bool
    layout: Path | None
    load: bool
    tag: str | None
    brief: bool
    cache: LayerCache | None = None
    publish: SigningKey | None = None
    named: bool = True


@dataclass(frozen=True)
class BuildResult:
    """A built image and the seconds that the build took."""

    built: Built
    seconds: float

    def as_dict(self) -> dict[str, object]:
        """The result as plain data, for --json."""
        built = self.built
        return {
            "recipe": built.plan.recipe,
            "base": built.plan.base,
            "digest": built.image.digest,
            "size": built.image.size,
            "seconds": round(self.seconds, 3),
            "layers": [
                {
                    "id": layer.id,
                    "key": layer.key,
                    "digest": record.digest if (record := built.records.get(layer.id)) else None,
                    "size": record.size if record else 0,
                    "state": _state(built, layer.id),
                    "receipt": record.receipt if record else None,
                }
                for layer in built.plan.layers
            ],
            "notes": list(built.plan.notes),
        }


def build_one(store: Store, plan: Plan, request: BuildRequest) -> BuildResult:
    """Build the image of a plan. Raises BuilderError."""
    try:
        with Progress(request.verbose) as progress:
            built = build_image(
                store,
                plan,
                engine=lambda: select_engine(request.engine, request.builder),
                offline=request.offline,
                listener=progress.on_event,
                log=progress.on_log,
                announce=lambda needs: _announce(store, needs, progress, request),
                jobs=request.jobs,
                source=request.mirror,
                cache=request.cache,
                named=request.named,
            )
    finally:
        # What did not count explains why a build failed, too.
        say_cached(request.cache)
    for warning in request.mirror.warnings() if request.mirror is not None else ():
        say(f"warning: {warning}")
    result = BuildResult(built, progress.elapsed)
    _summarize(result, brief=request.brief)
    if request.cache is not None and request.publish is not None:
        publish_layers(request.cache, store, plan, request.publish)
    name = request.tag or image_name(built)
    if request.layout is not None:
        write_layout(built.image, store, request.layout, name=name, base_blob=base_blobs(built.image))
        say(f"written to {request.layout} as {name}")
    if request.load:
        load_into_docker(built, store, name)
        say(f"loaded into docker as {name}")
    return result


def _state(built: Built, layer: str) -> str:
    if layer in built.made or layer in built.taken:
        return "built" if layer in built.made else "taken"
    return "cached" if layer in built.records else "config"


def _announce(store: Store, needs: Needs, progress: Progress, request: BuildRequest) -> None:
    """Print the number of layers and the sizes before the build starts."""
    sizes = {layer.id: sum(item.size for item in layer.inputs) * (layer.producer == "files") for layer in needs.layers}
    progress.expect(sizes, needs.download, earlier_seconds(store, needs.layers), request.jobs or os.cpu_count() or 1)
    say(needs_text(store, needs, request), hang=2)


def needs_text(store: Store, needs: Needs, request: BuildRequest) -> str:
    """What is built, downloaded and stored."""
    free = shutil.disk_usage(store.root).free
    verb = "copy from the mirror" if request.mirror is not None else "download"
    return (
        f"{counted(len(needs.layers), 'layer')} to build; {size(needs.download)} to {verb}, about {size(needs.store)} "
        f"more in the store, up to {size(needs.temporary)} for temporary files; {size(free)} free at {store.root}"
    )


def _summarize(result: BuildResult, *, brief: bool) -> None:
    built = result.built
    for layer in built.plan.layers:
        record = built.records.get(layer.id)
        if record is None or (brief and layer.id not in built.made | built.taken):
            continue
        state = _state(built, layer.id)
        say(f"  {layer.id:24} {state:7} {size(record.size):>10}  {record.digest[:19]}", row=True)
    image, plan = built.image, built.plan
    say(
        f"{plan.recipe} on {plan.base}: {len(image.layers)} layers, {size(image.size)}, in {result.seconds:.1f} s",
        hang=2,
    )
    for note in plan.notes:
        say(f"note: {note}", hang=2)
