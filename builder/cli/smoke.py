"""`builder test`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from builder.cli.build import make_image
from builder.cli.options import (
    BaseOption,
    CompressionOption,
    JsonOption,
    ProfileOption,
    RecipeOption,
    SetOption,
    print_json,
    say,
)
from builder.errors import SmokeError, UsageError

TIERS = ("static", "cpu", "gpu")


def test(
    recipe: RecipeOption,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    tier: Annotated[
        list[str] | None, typer.Option("--tier", help="static, cpu or gpu. May be repeated; default: static.")
    ] = None,
    require: Annotated[bool, typer.Option("--require", help="A check that cannot run here is an error.")] = False,
    junit: Annotated[Path | None, typer.Option("--junit", help="Also write JUnit XML to this file.")] = None,
    compression: CompressionOption = "zstd",
    json_: JsonOption = False,
) -> None:
    """Run the smoke checks of a built image: what its base, its layers and its recipe ask for."""
    from builder.project import Project
    from builder.smoke.cpu import run_cpu
    from builder.smoke.gather import checks_of
    from builder.smoke.gpu import run_gpu
    from builder.smoke.report import Report
    from builder.smoke.static import run_static

    tiers = list(dict.fromkeys(tier or ["static"]))
    if unknown := [name for name in tiers if name not in TIERS]:
        raise UsageError(f"there is no tier {unknown[0]!r}", cause=f"one of {', '.join(TIERS)}")
    built, store = make_image(Project(), recipe, base, set_, compression, profile)
    digest = built.image.digest
    checks = checks_of(built.plan)
    report = Report(digest)
    if "static" in tiers:
        ours = [layer.digest for layer in built.image.layers if not layer.of_base]
        report.add(run_static(store.root, digest, checks, ours=ours, folder=store.tmp))
    if "cpu" in tiers:
        report.add(run_cpu(store.root, digest, checks, folder=store.root / "run", tell=say))
    if "gpu" in tiers:
        report.add(run_gpu(digest, checks))
    if junit is not None:
        junit.write_text(report.as_junit(), "utf-8")
    if json_:
        print_json(report.as_dict())
    else:
        print(report.as_table(width=None if sys.stdout.isatty() else 160, color=sys.stdout.isatty()))
    if not report.ok(require=require):
        raise SmokeError(report.summary(), where=f"{recipe} {digest}", next="the table above names what failed")
