"""`builder doctor`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from builder.cli.options import BaseOption, JsonOption, ProfileOption, print_json
from builder.errors import EngineError, UsageError


def doctor(
    recipe: Annotated[str | None, typer.Option("--recipe", "-r", help="Look at what this recipe needs.")] = None,
    base: BaseOption = None,
    profile: ProfileOption = None,
    interface: Annotated[str | None, typer.Option("--interface", help="The direct link to the other node.")] = None,
    peer: Annotated[str | None, typer.Option("--peer", help="The other node's address on that link.")] = None,
    json_: JsonOption = False,
) -> None:
    """Check this machine: driver, docker, memory, disk, and for two nodes the link. What cannot be seen is said."""
    from builder.doctor.checks import examine
    from builder.doctor.host import ThisHost
    from builder.doctor.question import Question
    from builder.model.variant import with_profile
    from builder.plan.bases import select_base
    from builder.project import Project

    project = Project()
    served = with_profile(project.recipe(recipe), profile, project.shared_profiles) if recipe else None
    if base is not None and served is None:
        raise UsageError("--base says on which base the recipe is: name a recipe too", next="--recipe NAME")
    chosen = select_base(project, served, base) if served else None
    answers = examine(Question(ThisHost(), served, chosen, interface, peer))
    if json_:
        print_json([asdict(item) for item in answers])
    else:
        for item in answers:
            print(f"{item.state:8} {item.id:14} {item.message}" + (f"\n{'':23} fix: {item.fix}" if item.fix else ""))
    failed = [item.id for item in answers if item.state == "failed"]
    if failed:
        count = f"{len(failed)} check{'s' if len(failed) > 1 else ''}"
        raise EngineError(f"this machine fails {count}: {', '.join(failed)}", next="the fixes stand above")
