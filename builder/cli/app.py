"""The application: the list of all commands. A command's module is imported only when that command runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from builder import __version__
from builder.cli.command import Command, common, complete_values, declared, late
from builder.cli.help import documents, manual
from builder.cli.output import terminal_width
from builder.cli.steps import with_step
from builder.errors import BuilderError, UsageError

INTERRUPTED = 130
MOST_COLUMNS, LEAST_COLUMNS = 80, 50
"""Of help."""
Shell = Literal["bash", "zsh", "fish"]

COMMANDS = {
    "list": ("recipe.list:list_", "List recipes, bases, layers or profiles."),
    "show": ("recipe.show:show", "Show all facts about one recipe, base or layer."),
    "new": ("recipe.new:new", "Write the start of a new recipe or layer."),
    "add": ("recipe.add:add", "Add a layer of wheels or Debian packages, and its lock."),
    "lint": ("recipe.lint:lint", "Check recipes against the rules of the hardware."),
    "rules": ("recipe.rules:rules", "List the rules of the hardware, or explain one."),
    "schema": ("recipe.schema:schema", "Print the JSON schema of a kind of file, for editors."),
    "lock": ("lock:lock", "Resolve, update or check the lock, and pin bases."),
    "plan": ("image.plan:plan", "Show what a build would do, and do nothing."),
    "render": ("image.render:render", "Print one Dockerfile that makes an equivalent image."),
    "build": ("image.build:build", "Build images and print their digests."),
    "test": ("image.test:test", "Run the smoke checks of an image."),
    "verify": ("image.verify:verify", "Rebuild an image and compare it."),
    "diff": ("compare.diff:diff", "Show what changed between two images, plans or locks."),
    "explain": ("compare.explain:explain", "Explain why layers are built, and what needs them."),
    "graph": ("compare.graph:graph", "Show recipes, bases, layers and inputs as a graph."),
    "sbom": ("compare.sbom:sbom", "Print what an image consists of, as CycloneDX or SPDX."),
    "bisect": ("compare.bisect:bisect", "Find the change that makes an image bad."),
    "push": ("image.push:push", "Push a built image and print its reference."),
    "site": ("site:site", "Write a catalogue of images as HTML pages."),
    "serve": ("share.serve:serve", "Serve the store as a read-only registry."),
    "load": ("image.load:load", "Load a built image into docker."),
    "deploy": ("share.deploy:deploy", "Bring an image into the docker of other machines."),
    "mirror": ("image.mirror:mirror", "Copy all inputs of recipes to a folder or a registry."),
    "images": ("stored.images:images", "List the images in the store."),
    "gc": ("stored.gc:gc", "Delete from the store what no kept image needs."),
    "fsck": ("stored.fsck:fsck", "Check every file of the store."),
    "run": ("spark.run:run", "Print or run the command that serves a recipe."),
    "prefetch": ("spark.prefetch:prefetch", "Print or run the downloads of a recipe's weights."),
    "cache": ("spark.cache:cache", "List or delete what images compiled when they ran."),
    "bench": ("spark.bench:bench", "Measure the speed of a running server."),
    "doctor": ("spark.doctor:doctor", "Check that this machine can serve a recipe."),
    "engines": ("engines:engines", "List the build engines of this machine."),
}
"""Every command: its module below builder.cli and its function, and the summary that `builder --help` prints."""


GROUPS = {
    "Recipes and locks": ("list", "show", "new", "add", "lint", "rules", "schema", "lock"),
    "Images": ("plan", "render", "build", "test", "images", "push", "load", "deploy", "serve", "site", "mirror"),
    "Proof": ("verify", "diff", "explain", "graph", "sbom", "bisect"),
    "On a Spark": ("doctor", "prefetch", "run", "bench", "cache"),
    "This machine": ("engines", "gc", "fsck"),
}
"""The commands, as `builder --help` groups them."""


_called = ["builder"]
"""The command of this process, for messages of the parser, which do not always name it."""


class _Commands(TyperGroup):
    """All commands by name and summary; `resolve_command` replaces the called one by the real command."""

    def get_params(self, ctx: Any) -> list[Any]:
        return late(super().get_params(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands in groups."""
        width = max(map(len, COMMANDS))
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), COMMANDS[name][1]) for name in names])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        formatter.write_paragraph()
        formatter.write_text(f"builder COMMAND --help: options and examples. Documents: {documents()}")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, summary_only, rest = super().resolve_command(ctx, args)
        if summary_only is None or name is None:
            return name, None, rest
        _called[:] = [f"builder {name}"]
        # `gc --cache` deletes in a registry: only its user chooses which.
        if not ctx.resilient_parsing and not {"-h", "--help"} & set(rest) and name != "gc":
            ctx.default_map = {name: _defaults()}
        return name, load_command(name), rest


def _defaults() -> dict[str, str]:
    """The defaults of options that the project's builder.toml chooses. Variables win over them."""
    path = Path(os.environ.get("BUILDER_PROJECT") or ".", "builder.toml")
    if not path.is_file():
        return {}
    # Imported here: most commands need no pydantic for this.
    from builder.choices import load_choices

    chosen = load_choices(path).options()
    return {name: value for name, value in chosen.items() if not os.environ.get(f"BUILDER_{name.upper()}")}


@cache
def load_command(name: str) -> Any:
    """Make a command, with its options and help. Its module is imported when the command runs."""
    module, function = COMMANDS[name][0].split(":")
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    called = common(name, declared(f"builder.cli.{module}", function))
    single.command(name, cls=Command, short_help=COMMANDS[name][1])(called)
    command = typer.main.get_command(single)
    complete_values(command)
    return command


app = typer.Typer(
    name="builder",
    cls=_Commands,
    add_completion=False,
    help="Builds reproducible vLLM container images for NVIDIA DGX Spark (GB10).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)


def _not_loaded() -> None:
    """Placeholder of a command until it is called."""


for _name, (_, _summary) in COMMANDS.items():
    app.command(_name, short_help=_summary)(_not_loaded)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
    man: Annotated[bool, typer.Option("--man", help="Print the manual page: builder --man | man -l -")] = False,
    install_completion: Annotated[
        Shell | None, typer.Option("--install-completion", help="Install completion for a shell, for this user.")
    ] = None,
    show_completion: Annotated[
        Shell | None, typer.Option("--show-completion", help="Print the completion script for a shell.")
    ] = None,
) -> None:
    if install_completion is not None or show_completion is not None:
        # Imported here: it reads the project's names.
        from builder.cli import completion

        if show_completion is not None:
            print(completion.script(show_completion))
        if install_completion is not None:
            print(f"{completion.install(install_completion)}: open a new {install_completion}")
        raise typer.Exit
    if man:
        print("\n".join(manual(GROUPS, load_command)))
        raise typer.Exit
    if version:
        print(f"builder {__version__}")
        raise typer.Exit


@cache
def _group() -> Any:
    """The application with its summaries; typer makes a new one for every call."""
    return typer.main.get_command(app)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. arguments: of the command line; None: those of this process.

    Raises BuilderError for an expected failure, KeyboardInterrupt when the command was interrupted, and
    BrokenPipeError when the reader of standard output has gone.
    """
    if "_BUILDER_COMPLETE" in os.environ:
        from builder.cli import completion

        completion.prepare()
    _called[:] = ["builder"]
    try:
        # The parser would ask the stream that this process has replaced, and take 80 for its answer.
        width = max(min(terminal_width(), MOST_COLUMNS) - 2, LEAST_COLUMNS)
        result = _group()(arguments, prog_name="builder", standalone_mode=False, terminal_width=width)
    except BuilderError as error:
        raise with_step(error, _called[0]) from error
    except typer.Exit as error:
        result = error.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit:
        # typer and rich exit so when the reader of standard output has gone.
        raise BrokenPipeError from None
    except Exception as error:
        # Wrong usage. This class has no public name: some versions of typer carry a copy of click, others import it.
        if not (hasattr(error, "format_message") and hasattr(error, "show") and hasattr(error, "exit_code")):
            raise
        message = error.format_message()
        if message.startswith("Usage:"):
            # No arguments at all: the message is the help.
            error.show(file=sys.stderr)
            return int(error.exit_code)
        message = message[:1].lower() + message[1:].rstrip(".")
        raise UsageError(message, id="usage", next=f"{_called[0]} --help") from None
    if result == INTERRUPTED:
        # typer returns this code instead of raising KeyboardInterrupt.
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0
