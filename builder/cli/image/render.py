"""`builder render`: one Dockerfile that makes an equivalent image, and its build context."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from builder.cli.options import BaseOption, MirrorOption, OfflineOption, ProfileOption, RecipeOption, SetOption
from builder.cli.output import say
from builder.cli.progress import Progress
from builder.cli.request import asked, open_store
from builder.mirror.source import mirror_source
from builder.plan.render import render as render_plan
from builder.produce.context import write_full_context
from builder.project import Project


def render(
    recipe: RecipeOption,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    context: Annotated[
        Path | None,
        typer.Option(
            "--context", help="Also write the Dockerfile and its build context to this new folder, for docker buildx."
        ),
    ] = None,
    offline: OfflineOption = False,
    mirror: MirrorOption = None,
) -> None:
    """Print one complete Dockerfile that makes an equivalent image."""
    project = Project()
    plan = asked(project, recipe, base, set_, profile).plan(project)
    text = render_plan(project, plan)
    if context is not None:
        store, source = open_store(), mirror_source(mirror)
        with Progress() as progress:
            write_full_context(store, plan, text, context, offline=offline, listener=progress.on_event, source=source)
        for warning in source.warnings() if source is not None else ():
            say(f"warning: {warning}")
        say(f"context written; next: docker buildx build --network=none --platform {plan.platform} {context}")
    print(text, end="")
