"""`builder push` and `builder load`."""

from __future__ import annotations

from typing import Annotated

import typer

from builder.cli.build import make_image
from builder.cli.options import BaseOption, CompressionOption, ProfileOption, RecipeOption, SetOption, say, size


def push(
    reference: Annotated[str, typer.Argument(metavar="REF", help="Where to: REGISTRY/REPOSITORY:TAG.")],
    recipe: RecipeOption,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    compression: CompressionOption = "zstd",
) -> None:
    """Push a built image and print its reference by digest. Blobs that the registry has are not sent again."""
    from builder.oci.push import push_image
    from builder.oci.reference import Reference
    from builder.project import Project

    target = Reference.parse(reference)
    built, store = make_image(Project(), recipe, base, set_, compression, profile)
    for note in built.plan.notes:
        say(f"warning: {note}")

    def told(digest: str, what: str, count: int) -> None:
        say(f"  {digest[:19]} {what:9} {size(count):>10}")

    digest = push_image(built.image, store, target, told)
    print(f"{target.registry}/{target.repository}@{digest}")


def load(
    recipe: RecipeOption,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Name in docker; default: the recipe's.")] = None,
    compression: CompressionOption = "zstd",
) -> None:
    """Load a built image into docker and print the name it has there."""
    from builder.oci.dockerload import load_image
    from builder.project import Project

    built, store = make_image(Project(), recipe, base, set_, compression, profile)
    name = tag or f"{built.plan.recipe}:{built.image.digest.removeprefix('sha256:')[:12]}"
    load_image(built.image, store, name)
    print(name)
