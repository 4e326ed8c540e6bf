"""All commands in one application."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from builder import __version__
from builder.cli.image.build import build
from builder.cli.image.gc import gc
from builder.cli.image.mirror import mirror
from builder.cli.image.plan import plan, render
from builder.cli.image.push import load, push
from builder.cli.image.test import test
from builder.cli.lock import lock
from builder.cli.options import JsonOption, print_json
from builder.cli.recipe.lint import lint, rules
from builder.cli.recipe.listing import list_, show
from builder.cli.recipe.new import new
from builder.cli.spark.bench import bench
from builder.cli.spark.doctor import doctor
from builder.cli.spark.prefetch import prefetch
from builder.cli.spark.run import run as run_recipe

INTERRUPTED = 130

app = typer.Typer(
    name="builder",
    help="Builds reproducible vLLM container images for NVIDIA DGX Spark (GB10).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)
app.command("list")(list_)
app.command("run")(run_recipe)
commands = (show, lint, rules, lock, plan, render, build, test, push, load, mirror, prefetch, gc, bench, doctor, new)
for command in commands:
    app.command()(command)


@app.command()
def engines(
    usable: Annotated[bool, typer.Option("--usable", help="Only say with the exit code whether there is one.")] = False,
    json_: JsonOption = False,
) -> None:
    """Say which engines can be used here, and what is missing for the others."""
    from builder.engine.buildah import BuildahEngine
    from builder.engine.docker import DockerEngine
    from builder.engine.select import select_engine

    if usable:
        select_engine(None)
        return
    found = (DockerEngine().probe(), BuildahEngine().probe())
    if json_:
        print_json([{**asdict(info), "usable": info.usable} for info in found])
        return
    for info in found:
        state = f"{info.version}, usable" if info.usable else f"not usable: {info.problem}; {info.fix}"
        print(f"{info.name}: {state}")


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"builder {__version__}")
        raise typer.Exit


def run() -> int:
    """Run the command line and return its exit code. Errors of our own are raised as BuilderError."""
    try:
        result = app(standalone_mode=False)
    except typer.Exit as error:
        result = error.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit:
        # How typer and rich end when the reader of our output has left.
        raise BrokenPipeError from None
    except Exception as error:
        # Wrong usage. typer's own copy of click has no public name for this class, in some versions no click at all.
        if not (hasattr(error, "show") and hasattr(error, "exit_code")):
            raise
        error.show(file=sys.stderr)
        return int(error.exit_code)
    if result == INTERRUPTED:
        # How typer hands on a KeyboardInterrupt.
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0
