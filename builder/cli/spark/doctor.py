"""`builder doctor`: whether this machine can serve a recipe."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from builder.cli.link import check_link
from builder.cli.options import BaseOption, JsonOption, ProfileOption
from builder.cli.output import counted, print_json, print_line
from builder.cli.request import asked
from builder.doctor.checks import examine
from builder.doctor.host import ThisHost
from builder.doctor.question import Question
from builder.errors import EngineError, UsageError
from builder.project import Project
from builder.text import one_line


def doctor(
    recipe: Annotated[str | None, typer.Option("--recipe", "-r", help="Also check what this recipe needs.")] = None,
    base: BaseOption = None,
    profile: ProfileOption = None,
    interface: Annotated[
        str | None, typer.Option("--interface", help="Interfaces of the direct link, joined by commas.")
    ] = None,
    peer: Annotated[str | None, typer.Option("--peer", help="Address of the other Spark on the direct link.")] = None,
    hca: Annotated[
        str | None, typer.Option("--hca", help="RDMA devices of the direct link: checks each, and measures the first.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Check this machine: driver, docker, memory, disk, and for two nodes the link. Unknown facts are reported too."""
    if base is not None and recipe is None:
        raise UsageError("--base belongs to a recipe", id="base-without-recipe", next="add --recipe NAME")
    if profile is not None and recipe is None:
        raise UsageError("--profile belongs to a recipe", id="profile-without-recipe", next="add --recipe NAME")
    check_link(interface, peer, hca)
    project = Project()
    request = asked(project, recipe, base, profile=profile) if recipe is not None else None
    served, chosen = request.recipe_and_base(project) if request else (None, None)
    answers = examine(Question(ThisHost(), served, chosen, interface, peer, hca))
    if json_:
        print_json([asdict(item) for item in answers])
    else:
        for item in answers:
            print_line(f"{item.state:8} {item.id:14} {one_line(item.message)}", status=item.state, hang=24)
            if item.fix:
                print_line(f"{'':23} fix: {item.fix}")
    failed = [item.id for item in answers if item.state == "failed"]
    if failed:
        count = counted(len(failed), "check")
        raise EngineError(
            f"this machine fails {count}: {', '.join(failed)}", id="machine-checks-failed", next="apply the fixes above"
        )
