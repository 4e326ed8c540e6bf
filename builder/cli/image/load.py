"""`builder load`: a built image into docker."""

from __future__ import annotations

from typing import Annotated

import typer

from builder.cli.image.built import built_image, image_name, load_into_docker
from builder.cli.options import BaseOption, CompressionOption, ProfileOption, RecipeOption, SetOption
from builder.cli.request import COMPRESSION, PLATFORM, asked, check_tag
from builder.project import Project


def load(
    recipe: RecipeOption,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    tag: Annotated[
        str | None, typer.Option("--tag", help="Name of the image in docker; default: RECIPE:DIGEST.")
    ] = None,
    compression: CompressionOption = COMPRESSION,
) -> None:
    """Load a built image into docker and print its name there."""
    check_tag(tag)
    project = Project()
    request = asked(project, recipe, base, set_, profile, PLATFORM, compression)
    built, store = built_image(request, project)
    name = tag or image_name(built)
    load_into_docker(built, store, name)
    print(name)
