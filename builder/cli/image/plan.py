"""`builder plan` and `builder render`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from builder.cli.options import (
    BaseOption,
    JsonOption,
    MirrorOption,
    OfflineOption,
    PlatformOption,
    ProfileOption,
    RecipeOption,
    SetOption,
    make_plan,
    open_store,
    print_json,
    say,
    warn_of,
)


def plan(
    recipe: RecipeOption,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    platform: PlatformOption = "linux/arm64",
    json_: JsonOption = False,
) -> None:
    """Show what would be built: layers, inputs, keys, configuration. Executes nothing."""
    from builder.cli.options import size
    from builder.project import Project

    made = make_plan(Project(), recipe, base, set_, platform, profile=profile)
    if json_:
        print_json(made.to_json())
        return
    print(f"{made.recipe} on {made.base} ({made.platform})")
    if made.base_image:
        print(f"  base      {made.base_image}@{made.base_manifest}")
    for layer in made.layers:
        total = sum(item.size for item in layer.inputs)
        inputs = f"{len(layer.inputs)} inputs, {size(total)}" if layer.inputs else "no inputs"
        print(f"  {layer.id:24} {layer.producer:10} {layer.key[:12] or '-':12}  {inputs}")
    for item in made.env:
        print(
            f"  env       {item.name}={item.value}{' (before what is there)' if item.prepend else ''}  [{item.origin}]"
        )
    print(f"  command   {' '.join([*(made.entrypoint or ()), *made.command])}")
    for note in made.notes:
        print(f"  note      {note}")


def render(
    recipe: RecipeOption,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    context: Annotated[
        Path | None,
        typer.Option(
            "--context", help="Also write Dockerfile and build context into this new folder, for docker buildx build."
        ),
    ] = None,
    offline: OfflineOption = False,
    mirror: MirrorOption = None,
) -> None:
    """Print one complete Dockerfile that makes an equivalent image."""
    from builder.plan.render import render as render_plan
    from builder.project import Project

    project = Project()
    made = make_plan(project, recipe, base, set_, profile=profile)
    text = render_plan(project, made)
    if context is not None:
        from builder.cli.progress import Watch
        from builder.mirror.source import mirror_source
        from builder.produce.context import write_full_context

        store, source = open_store(), mirror_source(mirror)
        with Watch() as watch:
            write_full_context(store, made, text, context, offline=offline, listener=watch.heard, source=source)
        warn_of(source)
        say(f"context written; now: docker buildx build --network=none --platform {made.platform} {context}")
    print(text, end="")
