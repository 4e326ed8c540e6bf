"""Options that several commands share: their names, their help and their types."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PLATFORM = "linux/arm64"
COMPRESSION = "zstd"

RecipeOption = Annotated[str, typer.Option("--recipe", "-r", help="Name of the recipe; `builder list` shows all.")]
MaybeRecipeOption = Annotated[
    str | None, typer.Option("--recipe", "-r", help="Name of the recipe; `builder list` shows all.")
]
BaseOption = Annotated[
    str | None,
    typer.Option("--base", help="Base to use instead of the recipe's own: a name, an alias or a family."),
]
ProfileOption = Annotated[
    str | None,
    typer.Option("--profile", "-p", help="Profile of the recipe (`builder show RECIPE`). May be repeated."),
]
"""A command gets several as one word (`builder.cli.command.common`)."""
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Set a parameter of a layer: LAYER.PARAMETER=VALUE. May be repeated."),
]
PlatformOption = Annotated[str, typer.Option("--platform", help="Platform of the image.")]
CompressionOption = Annotated[
    str, typer.Option("--compression", help="Compression of the layers: zstd, or gzip for old clients.")
]
OfflineOption = Annotated[
    bool, typer.Option("--offline", help="Use only what is in the store, and in the mirror if one is named.")
]
MirrorOption = Annotated[
    str | None,
    typer.Option(
        "--mirror", envvar="BUILDER_MIRROR", help="Take inputs from this mirror first: DIR or REGISTRY/REPOSITORY."
    ),
]
MachineOption = Annotated[
    str | None, typer.Option("--machine", help="spark-64 or spark-128: check for this much memory.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
EngineOption = Annotated[str | None, typer.Option("--engine", help="auto, docker or buildah.")]
BuilderOption = Annotated[
    list[str] | None,
    typer.Option(
        "--builder", help="A buildx builder that compiles. May be repeated: each gets layers when it is free."
    ),
]
JobsOption = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, max=512, help="Parallel jobs; default: all processors.")
]
TrustOption = Annotated[
    bool, typer.Option("--trust-plan", help="Run the commands of a plan that comes from a registry, without asking.")
]
PolicyOption = Annotated[
    Path | None,
    typer.Option("--policy", help="Demand what this file says: whose signatures and rebuilds the image must have."),
]
KeyOption = Annotated[
    Path | None,
    typer.Option(
        "--key",
        envvar="BUILDER_KEY",
        help="Sign with this private key (PEM, ECDSA P-256); BUILDER_KEY_PASSWORD decrypts it.",
    ),
]
SignedByOption = Annotated[
    list[Path] | None,
    typer.Option("--signed-by", help="Demand statements that this public key signed. May be repeated: all of them."),
]
CacheOption = Annotated[
    str | None,
    typer.Option("--cache", envvar="BUILDER_CACHE", help="Look layers up in this repository: REGISTRY/REPOSITORY."),
]
LayerPolicyOption = Annotated[
    Path | None,
    typer.Option("--policy", help="Take a layer from the cache if those who this file names under `layers` built it."),
]
PublishOption = Annotated[
    bool, typer.Option("--publish", help="Sign the layers that were built here with --key and put them in the cache.")
]
