"""`builder push`: a built image to a registry, with its bundle, and the results of its smoke checks if asked."""

from __future__ import annotations

from typing import Annotated

import typer

from builder.cli.image.built import built_image
from builder.cli.options import BaseOption, CompressionOption, ProfileOption, RecipeOption, SetOption
from builder.cli.output import say, size
from builder.cli.request import COMPRESSION, PLATFORM, PlanRequest
from builder.digest import Digest
from builder.errors import UsageError
from builder.model.reference import Reference
from builder.oci.assemble import Image
from builder.oci.manifest import OCI_MANIFEST
from builder.project import Project
from builder.registry.client import Registry
from builder.registry.push import push_image
from builder.registry.referrers import attach
from builder.regular import read_regular
from builder.smoke.results import LIMIT, MEDIA_TYPE, read_results, results_folder, results_path
from builder.store.store import Store
from builder.verify.bundles import attach_bundle
from builder.verify.revision import revision_of


def push(
    reference: Annotated[str, typer.Argument(metavar="REF", help="Target: REGISTRY/REPOSITORY:TAG.")],
    recipe: RecipeOption,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    compression: CompressionOption = COMPRESSION,
    with_results: Annotated[
        bool, typer.Option("--with-results", help="Also attach the results of the image's smoke checks to it.")
    ] = False,
) -> None:
    """Push a built image and print its reference by digest. Blobs that the registry has already are not sent.

    The bundle of its plan is attached to it, from which `builder verify` rebuilds it.
    """
    target = Reference.parse(reference)
    request = PlanRequest(recipe, base, tuple(set_ or ()), profile, PLATFORM, compression)
    project = Project()
    built, store = built_image(request, project)
    results = _results(store, built.image.digest, recipe) if with_results else None
    for note in built.plan.notes:
        say(f"warning: {note}")
    digest = push_image(built.image, store, target, _print_blob)
    bundle = attach_bundle(Registry(), target, built.image, built.plan, revision_of(project.roots[0]))
    say(f"  bundle attached as {bundle}")
    if results is not None:
        say(f"  results attached as {_attach(target, built.image, results)}")
    print(f"{target.registry}/{target.repository}@{digest}")


def _print_blob(digest: Digest, state: str, count: int) -> None:
    say(f"  {digest[:19]} {state:9} {size(count):>10}")


def _results(store: Store, digest: Digest, recipe: str) -> bytes:
    folder = results_folder(store.root)
    if read_results(folder, digest) is None:
        raise UsageError(
            f"there are no results of {digest}", id="results-missing", next=f"builder test --recipe {recipe}"
        )
    return read_regular(results_path(folder, digest), LIMIT)


def _attach(target: Reference, image: Image, results: bytes) -> str:
    subject = {"mediaType": OCI_MANIFEST, "digest": image.digest, "size": len(image.manifest)}
    return attach(Registry(), target, subject, results, MEDIA_TYPE)
