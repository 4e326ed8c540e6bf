"""`builder plan`: the resolved plan of one image, as text or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from builder.atomic import write_file
from builder.cli.options import PLATFORM, BaseOption, JsonOption, PlatformOption, ProfileOption, RecipeOption, SetOption
from builder.cli.output import counted, print_json, print_line, size
from builder.cli.request import asked
from builder.errors import UsageError
from builder.model.plan import Plan
from builder.project import Project


def plan(
    recipe: RecipeOption,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    platform: PlatformOption = PLATFORM,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="Also write the bundle, from which `builder build --plan` builds.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Show what a build would do: layers, inputs, keys and configuration. Nothing is executed."""
    project = Project()
    planned = asked(project, recipe, base, set_, profile, platform).plan(project)
    if bundle is not None:
        # Imported here: a plan that is only printed starts without it.
        from builder.plan.bundle import write_bundle

        try:
            write_file(bundle, write_bundle(planned))
        except OSError as error:
            what = f"cannot write the bundle: {error.strerror}"
            raise UsageError(what, id="bundle-not-writable", where=str(bundle)) from None
    if json_:
        print_json(planned.to_json())
    else:
        _print(planned)


def _print(plan: Plan) -> None:
    print_line(f"{plan.recipe} on {plan.base} ({plan.platform})", hang=2)
    if plan.base_image:
        print_line(f"  base      {plan.base_image}@{plan.base_manifest}", hang=12)
    for layer in plan.layers:
        total = sum(item.size for item in layer.inputs)
        inputs = f"{counted(len(layer.inputs), 'input')}, {size(total)}" if layer.inputs else "no inputs"
        print_line(f"  {layer.id:24} {layer.producer:10} {inputs:22}  {layer.key[:12] or '-'}", row=True)
    for item in plan.env:
        prepended = " (before the base's value)" if item.prepend else ""
        print_line(f"  env       {item.name}={item.value}{prepended}  [{item.origin}]", hang=12)
    print_line(f"  command   {' '.join([*(plan.entrypoint or ()), *plan.command])}", hang=12)
    for note in plan.notes:
        print_line(f"  note      {note}", hang=12)
