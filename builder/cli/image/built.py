"""The image of a recipe that was built before: its name, and loading it into docker."""

from __future__ import annotations

import shlex

from builder.cli.again import again
from builder.cli.image.sending import Pulling
from builder.cli.output import counted, say, size
from builder.cli.request import PlanRequest, open_store
from builder.cli.stored.offers import offers
from builder.errors import UsageError
from builder.produce.image import Built, assembled
from builder.project import Project
from builder.registry.push import base_blobs
from builder.share.load import load_image
from builder.store.store import Store


def built_image(request: PlanRequest, project: Project, *, load: bool = False) -> tuple[Built, Store]:
    """The built image and the store that holds it. load: the caller needs it in docker.

    Raises UsageError `image-not-built` when a layer is missing; it names the built images of the recipe.
    """
    store = open_store()
    plan = request.plan(project)
    try:
        return assembled(store, plan), store
    except UsageError as error:
        if error.id != "image-not-built":
            raise
        build = request.command("build", *(["--load"] if load else []))
        found = offers(store, project, request)
        if not found:
            raise error.replaced(next=build) from error
        built = ", or ".join(shlex.join(each.words()[2:]) or "its own base" for each in found)
        cause = f"{error.cause}; the store has this recipe with {built}"
        raise error.replaced(cause=cause, next=f"{again(found[0])}; or {build}") from error


def image_name(built: Built) -> str:
    """The name that an image gets without --tag: RECIPE:DIGEST, with the first 12 digits of the digest."""
    return f"{built.plan.recipe}:{built.image.digest.short}"


def load_into_docker(built: Built, store: Store, name: str) -> None:
    """Load an image into docker under this name. Raises BuilderError."""
    layers = counted(len(built.image.layers), "layer")
    say(f"docker takes what it lacks of {layers}, {size(built.image.size)}", hang=2)
    with Pulling({layer.digest.short: layer.size for layer in built.image.layers}) as shown:
        load_image(built.image, store, built.plan.recipe, name, base_blobs(built.image), say, shown.listener())
