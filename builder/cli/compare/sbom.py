"""`builder sbom`: what an image consists of, as CycloneDX or SPDX."""

from __future__ import annotations

from typing import Annotated

import typer

from builder.attest.cyclonedx import cyclonedx
from builder.attest.inventory import Inventory
from builder.attest.spdx import spdx
from builder.cli.image.built import built_image
from builder.cli.options import (
    COMPRESSION,
    PLATFORM,
    BaseOption,
    CompressionOption,
    MaybeRecipeOption,
    ProfileOption,
    SetOption,
)
from builder.cli.output import say
from builder.cli.request import asked, open_store
from builder.errors import BuilderError, PinError, UsageError
from builder.mirror.basefetch import base_image
from builder.model.canonical import canonical
from builder.model.plan import Plan
from builder.model.reference import Reference
from builder.project import Project
from builder.registry.client import Registry
from builder.smoke.image.opened import OpenedImage
from builder.smoke.image.remote import remote_image
from builder.text import escaped
from builder.verify.bundles import bundles_of, makes
from builder.verify.inventory import built_inventory, image_inventory

FORMATS = {"cyclonedx": cyclonedx, "spdx": spdx}


def sbom(
    reference: Annotated[
        str | None, typer.Argument(metavar="REF", help="An image in a registry, instead of the recipe's built one.")
    ] = None,
    recipe: MaybeRecipeOption = None,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    compression: CompressionOption = COMPRESSION,
    format: Annotated[str, typer.Option("--format", "-f", help="cyclonedx (1.6) or spdx (2.3).")] = "cyclonedx",
) -> None:
    """Print the bill of materials of an image as JSON: packages, distributions, sources, toolchain.

    The files of the image are read, whatever is attached to it. Equal images have equal documents.
    """
    if format not in FORMATS:
        raise UsageError(f"there is no format {format!r}", id="sbom-format-unknown", cause="cyclonedx or spdx")
    if (reference is None) == (recipe is None):
        raise UsageError("name either an image or a recipe", id="sbom-image-not-given", next="REF, or --recipe NAME")
    if recipe is None:
        found = _remote(Reference.parse(str(reference)))
    else:
        project = Project()
        request = asked(project, recipe, base, set_, profile, PLATFORM, compression)
        found = built_inventory(*built_image(request, project))
    # Not indented: the same bytes that `push` attaches.
    print(escaped(canonical(FORMATS[format](found)).decode("utf-8", "surrogatepass")))


def _remote(reference: Reference) -> Inventory:
    """An image in a registry. Its plan is that of a bundle which makes its configuration, if one is attached."""
    client = Registry()
    image = remote_image(reference, client)
    plan: Plan | None = None
    try:
        named = [name for name in image.names if name]
        for bundle in bundles_of(client, reference, image.digest):
            ids = [layer.id for layer in bundle.plan.layers if layer.producer != "config"]
            if ids == named and _makes(bundle.plan, image):
                plan = bundle.plan
                say(f"sources, toolchain, names of files and hashes are as the bundle {bundle.digest.short} says")
                say(f"anybody who may push can attach one; whether it makes the image: builder verify {reference}")
                break
    except PinError:
        plan = None
    title = plan.recipe if plan is not None else reference.repository
    return image_inventory(image, title, plan)


def _makes(plan: Plan, image: OpenedImage) -> bool:
    """Whether a plan makes the image, as far as it can be told without building; False if its base cannot be read."""
    try:
        return makes(plan, base_image(plan, open_store(), offline=False), image)
    except BuilderError:
        return False
