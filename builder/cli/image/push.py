"""`builder push` and `builder load`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from builder.cli.image.build import make_image
from builder.cli.options import (
    BaseOption,
    CompressionOption,
    ProfileOption,
    RecipeOption,
    SetOption,
    check_tag,
    say,
    size,
)
from builder.digest import Digest
from builder.errors import UsageError

if TYPE_CHECKING:
    from builder.model.reference import Reference
    from builder.oci.assemble import Image
    from builder.store.store import Store


def push(
    reference: Annotated[str, typer.Argument(metavar="REF", help="Where to: REGISTRY/REPOSITORY:TAG.")],
    recipe: RecipeOption,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    compression: CompressionOption = "zstd",
    with_results: Annotated[
        bool, typer.Option("--with-results", help="Also attach the results of the image's smoke checks to it.")
    ] = False,
) -> None:
    """Push a built image and print its reference by digest. Blobs that the registry has are not sent again."""
    from builder.model.reference import Reference
    from builder.project import Project
    from builder.registry.push import push_image

    target = Reference.parse(reference)
    built, store = make_image(Project(), recipe, base, set_, compression, profile)
    results = _results(store, built.image.digest, recipe) if with_results else None
    for note in built.plan.notes:
        say(f"warning: {note}")

    def told(digest: Digest, what: str, count: int) -> None:
        say(f"  {digest[:19]} {what:9} {size(count):>10}")

    digest = push_image(built.image, store, target, told)
    if results is not None:
        say(f"  results attached as {_attach(target, built.image, results)}")
    print(f"{target.registry}/{target.repository}@{digest}")


def _results(store: Store, digest: Digest, recipe: str) -> bytes:
    from builder.smoke.results import read_results, results_folder, results_path

    folder = results_folder(store.root)
    if read_results(folder, digest) is None:
        raise UsageError(f"there are no results of {digest}", next=f"builder test --recipe {recipe}")
    return results_path(folder, digest).read_bytes()


def _attach(target: Reference, image: Image, results: bytes) -> str:
    from builder.oci.manifest import OCI_MANIFEST
    from builder.registry.client import Registry
    from builder.registry.referrers import attach
    from builder.smoke.results import MEDIA_TYPE

    subject = {"mediaType": OCI_MANIFEST, "digest": image.digest, "size": len(image.manifest)}
    return attach(Registry(), target, subject, results, MEDIA_TYPE)


def load(
    recipe: RecipeOption,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Name in docker; default: the recipe's.")] = None,
    compression: CompressionOption = "zstd",
) -> None:
    """Load a built image into docker and print the name it has there."""
    from builder.oci.dockerarchive import load_image
    from builder.project import Project
    from builder.registry.push import base_blobs

    check_tag(tag)
    built, store = make_image(Project(), recipe, base, set_, compression, profile)
    name = tag or f"{built.plan.recipe}:{built.image.digest.short}"
    load_image(built.image, store, name, base_blobs(built.image))
    print(name)
