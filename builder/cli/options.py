"""Options that several commands share, and what they mean."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from builder.errors import UsageError
from builder.text import escaped, printable

if TYPE_CHECKING:
    from builder.mirror.source import MirrorSource
    from builder.model.plan import Plan
    from builder.project import Project
    from builder.store.store import Store

RecipeOption = Annotated[str, typer.Option("--recipe", "-r", help="Recipe to use; `builder list` shows them.")]
BaseOption = Annotated[
    str | None,
    typer.Option("--base", help="Base to build on instead of the recipe's own: a name, an alias or a family."),
]
ProfileOption = Annotated[
    str | None, typer.Option("--profile", "-p", help="Profile of the recipe; `builder show RECIPE` lists them.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="A layer's parameter, as LAYER.PARAMETER=VALUE. May be repeated.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OfflineOption = Annotated[
    bool, typer.Option("--offline", help="Use nothing but what is in the store, and the mirror where one is named.")
]
MirrorOption = Annotated[
    str | None,
    typer.Option(
        "--mirror", envvar="BUILDER_MIRROR", help="Take inputs from this mirror first: DIR or REGISTRY/REPOSITORY."
    ),
]
PlatformOption = Annotated[str, typer.Option("--platform", help="Platform of the image.")]
CompressionOption = Annotated[
    str, typer.Option("--compression", help="How layers are compressed: zstd, or gzip for old clients.")
]


def open_store() -> Store:
    """The store of this user."""
    from builder.store.store import Store, default_root

    return Store(default_root())


def make_plan(
    project: Project,
    recipe: str,
    base: str | None,
    sets: list[str] | None,
    platform: str = "linux/arm64",
    compression: str = "zstd",
    profile: str | None = None,
) -> Plan:
    """The plan that the common options ask for."""
    from builder.oci.format import MEDIA_TYPES
    from builder.plan.resolve import parse_sets, resolve

    if compression not in MEDIA_TYPES:
        raise UsageError(f"there is no compression {compression!r}", cause=f"one of {', '.join(MEDIA_TYPES)}")
    return resolve(
        project,
        project.recipe(recipe),
        base=base,
        sets=parse_sets(sets or []),
        platform=platform,
        compression=compression,
        profile=profile,
    )


def check_tag(tag: str | None) -> None:
    """Raises UsageError for what no image can be called."""
    if tag is not None:
        from builder.model.reference import Reference

        Reference.parse(tag)


def print_json(value: Any) -> None:
    """The result as JSON on standard output."""
    print(escaped(json.dumps(value, indent=2, ensure_ascii=False)))


def say(text: str) -> None:
    """A message to the person watching; results go to standard output, this does not."""
    print(printable(text), file=sys.stderr, flush=True)


def warn_of(source: MirrorSource | None) -> None:
    """Say what a mirror could not give."""
    for text in source.warnings() if source is not None else ():
        say(f"warning: {text}")


def size(count: int) -> str:
    """Bytes for people, in powers of ten."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count} B"
