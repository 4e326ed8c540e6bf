"""The gpu tier of `builder test`."""

from __future__ import annotations

from builder.cli.options import say
from builder.oci.dockerload import load_image
from builder.oci.store import Store
from builder.plan.resolve import select_base
from builder.plan.variant import with_profile
from builder.produce.image import Built
from builder.project import Project
from builder.smoke.gather import checks_of
from builder.smoke.gpu import run_gpu
from builder.smoke.gpu_site import Image, Options
from builder.smoke.report import Report


def gpu_report(
    project: Project,
    built: Built,
    store: Store,
    recipe: str,
    base: str | None,
    profile: str | None,
    options: Options,
) -> Report:
    """Run the gpu tier on a built image, under the name that `build --load` gives it."""
    image = built.image
    name = f"{recipe}:{image.digest.removeprefix('sha256:')[:12]}"
    served = with_profile(project.recipe(recipe), profile, project.shared_profiles)
    return run_gpu(
        image.digest,
        checks_of(built.plan),
        served,
        select_base(project, served, base),
        Image(name, frozenset({image.digest, image.config_digest}), lambda: load_image(image, store, name)),
        options=options,
        tell=say,
    )
