"""`builder build`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from builder.cli.options import (
    BaseOption,
    CompressionOption,
    JsonOption,
    MirrorOption,
    OfflineOption,
    PlatformOption,
    ProfileOption,
    SetOption,
    check_tag,
    make_plan,
    open_store,
    print_json,
    say,
    size,
    warn_of,
)
from builder.cli.rulecheck import tell_broken
from builder.errors import BuilderError, UsageError

if TYPE_CHECKING:
    from builder.mirror.source import MirrorSource
    from builder.model.plan import Plan
    from builder.produce.image import Built
    from builder.produce.survey import Needs
    from builder.project import Project
    from builder.store.store import Store


def build(
    recipe: Annotated[
        list[str] | None, typer.Option("--recipe", "-r", help="Recipe to build. May be repeated.")
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Build every recipe that this base can carry, and say why the others cannot.")
    ] = False,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    engine: Annotated[str | None, typer.Option("--engine", help="auto, docker or buildah.")] = None,
    builder: Annotated[str | None, typer.Option("--builder", help="A buildx builder to compile with.")] = None,
    platform: PlatformOption = "linux/arm64",
    compression: CompressionOption = "zstd",
    offline: OfflineOption = False,
    mirror: MirrorOption = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, max=512, help="Parallel jobs; default: all processors.")
    ] = None,
    output: Annotated[str | None, typer.Option("--output", help="Also write the image: oci:DIR.")] = None,
    load: Annotated[bool, typer.Option("--load", help="Also load the image into docker.")] = False,
    tag: Annotated[
        str | None, typer.Option("--tag", help="Name for --load and --output; default: the recipe's.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the engine's whole output.")] = False,
    json_: JsonOption = False,
) -> None:
    """Build images and print their digests.

    Everything that is read is in the lock, by hash; what was built before is taken from the store.
    """
    from builder.engine.select import check_engine
    from builder.mirror.source import mirror_source
    from builder.project import Project

    check_engine(engine, builder)
    check_tag(tag)
    project = Project()
    names = project.recipe_names() if all_ else list(dict.fromkeys(recipe or ()))
    if not names:
        raise UsageError("no recipe given", next="builder build --recipe NAME; builder list shows the names")
    if len(names) > 1 and tag is not None:
        raise UsageError("--tag names one image, but several recipes are to be built")
    folder = _output(output)
    source = mirror_source(mirror)
    store = open_store()
    left: dict[str, str] = {}
    if all_:
        from builder.cli.image.build_all import plans_of_all

        plans, left = plans_of_all(project, names, base, set_, platform, compression, profile)
    else:
        plans = [make_plan(project, name, base, set_, platform, compression, profile) for name in names]
    tell_broken(project, plans, profile)
    results: list[dict[str, object]] = []
    failed: dict[str, BuilderError] = {}
    for made in plans:
        try:
            built, seconds = _one(store, made, engine, builder, offline, source, jobs, verbose, brief=all_)
            name = tag or f"{made.recipe}:{_short(built)}"
            if folder is not None:
                _write(built, store, folder, name)
            if load:
                from builder.oci.dockerarchive import load_image
                from builder.registry.push import base_blobs

                load_image(built.image, store, name, base_blobs(built.image))
                say(f"loaded into docker as {name}")
        except BuilderError as error:
            if not all_:
                raise
            # One recipe that fails does not keep the others from being built; all failures are told at the end.
            failed[made.recipe] = error
            say(f"{made.recipe} was not built: {error}")
            continue
        results.append(_result(built, seconds))
        if not json_:
            print(f"{built.image.digest}  {made.recipe}" if all_ or len(plans) > 1 else built.image.digest, flush=True)
    if json_:
        rows = [*results, *({"recipe": name, "digest": None, "left_out": why} for name, why in left.items())]
        print_json(rows if all_ or len(plans) > 1 else rows[0])
    if all_:
        from builder.cli.image.build_all import close

        close(results, left, failed)


def _one(
    store: Store,
    plan: Plan,
    engine: str | None,
    builder: str | None,
    offline: bool,
    source: MirrorSource | None,
    jobs: int | None,
    verbose: bool,
    *,
    brief: bool,
) -> tuple[Built, float]:
    from builder.cli.progress import Watch
    from builder.engine.select import select_engine
    from builder.produce.image import build_image

    with Watch(verbose) as watch:
        built = build_image(
            store,
            plan,
            engine=lambda: select_engine(engine, builder),
            offline=offline,
            listener=watch.heard,
            log=watch.log,
            announce=lambda needs: _announce(store, needs, source),
            jobs=jobs,
            source=source,
        )
    warn_of(source)
    _summary(built, watch.elapsed, brief=brief)
    return built, watch.elapsed


def _announce(store: Store, needs: Needs, source: MirrorSource | None) -> None:
    import shutil

    free = shutil.disk_usage(store.root).free
    how = "take from the mirror" if source is not None else "download"
    say(
        f"{len(needs.layers)} layers to make; {size(needs.download)} to {how}, about {size(needs.store)} more in "
        f"the store, up to {size(needs.temporary)} for temporary files; {size(free)} free at {store.root}"
    )


def _summary(built: Built, seconds: float, *, brief: bool) -> None:
    for layer in built.plan.layers:
        record = built.records.get(layer.id)
        if record is None or (brief and layer.id not in built.made):
            continue
        how = "built" if layer.id in built.made else "cached"
        say(f"  {layer.id:24} {how:7} {size(record.size):>10}  {record.digest[:19]}")
    image = built.image
    say(f"{built.plan.recipe} on {built.plan.base}: {len(image.layers)} layers, {size(image.size)}, in {seconds:.1f} s")
    for note in built.plan.notes:
        say(f"note: {note}")


def _result(built: Built, seconds: float) -> dict[str, object]:
    return {
        "recipe": built.plan.recipe,
        "base": built.plan.base,
        "digest": built.image.digest,
        "size": built.image.size,
        "seconds": round(seconds, 3),
        "layers": [
            {
                "id": layer.id,
                "key": layer.key,
                "digest": record.digest if (record := built.records.get(layer.id)) else None,
                "size": record.size if record else 0,
                "state": "built" if layer.id in built.made else "cached" if record else "config",
                "receipt": record.receipt if record else None,
            }
            for layer in built.plan.layers
        ],
        "notes": list(built.plan.notes),
    }


def _output(text: str | None) -> Path | None:
    if text is None:
        return None
    kind, _, folder = text.partition(":")
    if kind != "oci" or not folder:
        raise UsageError(f"--output {text!r} is not oci:DIR")
    return Path(folder)


def _write(built: Built, store: Store, folder: Path, name: str) -> None:
    from builder.oci.layout import write_layout
    from builder.registry.push import base_blobs

    write_layout(built.image, store, folder, name=name, base_blob=base_blobs(built.image))
    say(f"written to {folder} as {name}")


def _short(built: Built) -> str:
    return built.image.digest.short


def make_image(
    project: Project,
    recipe: str,
    base: str | None,
    sets: list[str] | None,
    compression: str = "zstd",
    profile: str | None = None,
) -> tuple[Built, Store]:
    """The image of a recipe that was built before. Raises InvalidError when it was not."""
    from builder.produce.image import assembled

    store = open_store()
    return assembled(store, make_plan(project, recipe, base, sets, compression=compression, profile=profile)), store
