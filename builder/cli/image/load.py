"""`builder load`: an image into docker, built here or from a registry."""

from __future__ import annotations

from typing import Annotated

import typer

from builder.cli.image.built import built_image, image_name, load_into_docker
from builder.cli.image.sending import Pulling
from builder.cli.options import (
    COMPRESSION,
    PLATFORM,
    BaseOption,
    CompressionOption,
    JsonOption,
    MaybeRecipeOption,
    PolicyOption,
    ProfileOption,
    SetOption,
)
from builder.cli.output import print_json
from builder.cli.request import asked, check_tag
from builder.errors import UsageError
from builder.project import Project


def load(
    reference: Annotated[
        str | None, typer.Argument(metavar="REF", help="An image in a registry, which docker pulls by its digest.")
    ] = None,
    recipe: MaybeRecipeOption = None,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    policy: PolicyOption = None,
    tag: Annotated[
        str | None, typer.Option("--tag", help="Name of the image in docker; default: RECIPE:DIGEST.")
    ] = None,
    compression: CompressionOption = COMPRESSION,
    json_: JsonOption = False,
) -> None:
    """Load a built image, or one of a registry, into docker and print its name there."""
    check_tag(tag)
    if reference is not None:
        if recipe is not None:
            raise UsageError(
                "--recipe names an image that was built here, REF another",
                id="load-two-images",
                next="name one of them",
            )
        name = _pull(reference, policy, tag)
        print_json({"name": name, "image": reference}) if json_ else print(name)
        return
    if policy is not None:
        raise UsageError("a policy is about an image in a registry", id="policy-without-image", next="name it: REF")
    if recipe is None:
        raise UsageError("no image to load", id="load-image-missing", next="builder load NAME")
    project = Project()
    request = asked(project, recipe, base, set_, profile, PLATFORM, compression)
    built, store = built_image(request, project)
    name = tag or image_name(built)
    load_into_docker(built, store, name)
    print_json({"name": name, "digest": built.image.digest}) if json_ else print(name)


def _pull(reference: str, policy: PolicyOption, tag: str | None) -> str:
    """Let docker pull an image by the digest that was checked; its name there. Raises as `enforce`, EngineError."""
    # Imported here: the docker SDK and what reads statements take 0.3 s, and only a pull needs both.
    from builder.cli.proof.policy import pinned
    from builder.engine.daemon import Daemon

    name = pinned(policy, reference)
    with Daemon() as daemon, Pulling() as shown:
        daemon.pull(name, platform=PLATFORM, listener=shown.listener())
        if tag is not None:
            daemon.tag(name, tag)
    return tag or name
