"""`builder engines`: the build engines of this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from builder.cli.options import JsonOption
from builder.cli.output import print_json, print_line
from builder.engine.buildah import BuildahEngine
from builder.engine.docker import DockerEngine
from builder.engine.select import select_engine


def engines(
    usable: Annotated[
        bool, typer.Option("--usable", help="Print nothing; exit with 0 if an engine is usable.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """List the engines; for each that cannot be used, the problem and its fix."""
    if usable:
        select_engine(None)
        return
    found = (DockerEngine().probe(), BuildahEngine().probe())
    if json_:
        print_json([{**asdict(info), "usable": info.usable} for info in found])
        return
    for info in found:
        state = f"{info.version}, usable" if info.usable else f"not usable: {info.problem}; {info.fix}"
        print_line(f"{info.name}: {state}", hang=2)
