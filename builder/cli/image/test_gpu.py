"""The gpu tier of `builder test`."""

from __future__ import annotations

from collections.abc import Sequence

from builder.cli.options import say
from builder.digest import Digest
from builder.errors import EngineError, UsageError
from builder.model.check import Check
from builder.model.reference import Reference
from builder.model.variant import with_profile
from builder.oci.dockerarchive import load_image
from builder.plan.bases import select_base
from builder.produce.image import Built
from builder.project import Project
from builder.registry.push import base_blobs
from builder.smoke.gpu.docker import Docker
from builder.smoke.gpu.machine import GpuImage, Options
from builder.smoke.report import Report
from builder.store.store import Store


def built_image(built: Built, store: Store) -> GpuImage:
    """An image of the store, under the name that `build --load` gives it in docker."""
    image = built.image
    name = f"{built.plan.recipe}:{image.digest.short}"
    return GpuImage(
        name, frozenset({image.digest, image.config_digest}), lambda: load_image(image, store, name, base_blobs(image))
    )


def pulled_image(reference: Reference, digest: Digest, config: Digest) -> GpuImage:
    """An image of a registry, which docker pulls by its digest."""
    name = f"{reference.registry}/{reference.repository}@{digest}"

    def pull() -> None:
        done = Docker()("pull", "--quiet", name, timeout=7200)
        if done.code != 0:
            raise EngineError(f"docker does not pull {name}", cause=done.said.strip()[-300:] or "it said nothing")

    return GpuImage(name, frozenset({digest, config}), pull)


def gpu_report(
    digest: Digest,
    checks: Sequence[Check],
    image: GpuImage | None,
    recipe: str | None,
    base: str | None,
    profile: str | None,
    options: Options,
) -> Report:
    """Run the gpu tier. Raises UsageError without a recipe, which says how the image is run, or for a folder."""
    if recipe is None:
        raise UsageError("the gpu tier runs an image as its recipe says", next="name the recipe: --recipe NAME")
    if image is None:
        raise UsageError("docker runs no image from a folder", next="push it and name the reference, or build --load")
    from builder.smoke.gpu.run import run_gpu

    project = Project()
    served = with_profile(project.recipe(recipe), profile, project.shared_profiles)
    return run_gpu(digest, checks, served, select_base(project, served, base), image, options=options, tell=say)
