"""What was built before: the options that name the images of a recipe in the store."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from builder.choices import parameter_text
from builder.cli.request import PlanRequest
from builder.errors import BuilderError
from builder.project import Project
from builder.store.images import StoredImage, stored_images
from builder.store.store import Store

_MOST = 3


def offers(store: Store, project: Project, wanted: PlanRequest) -> list[PlanRequest]:
    """Other images of the wanted recipe in the store: those on the wanted base first, then the last used; at most 3.

    Only images that the project as it is now plans in the same way are offered.
    """
    named = project.find_bases(wanted.base) if wanted.base else []
    alike = [image for image in stored_images(store) if image.recipe == wanted.recipe]
    alike.sort(key=lambda image: image.base not in {base.name for base in named})
    found: list[PlanRequest] = []
    for image in alike:
        request = request_of(image, project, wanted)
        if request is not None and request not in found and all(map(store.layer, filter(None, image.layers.values()))):
            found.append(request)
        if len(found) == _MOST:
            break
    return found


def request_of(image: StoredImage, project: Project, wanted: PlanRequest) -> PlanRequest | None:
    """The request whose plan is that of the image, with the wanted word for the base where it names that base.

    None when the project has changed, or when the image has another compression.
    """
    plain = replace(wanted, base=image.base, sets=(), profile=image.profile)
    with contextlib.suppress(BuilderError):
        sets = tuple(
            f"{layer.layer}.{name}={parameter_text(value)}"
            for layer in plain.plan(project).layers
            for name, value in image.params.get(layer.id, {}).items()
            if parameter_text(value) != parameter_text(layer.params.get(name))
        )
        request = replace(plain, sets=sets)
        if request.plan(project).key == image.key:
            same = wanted.base is not None and wanted.recipe_and_base(project)[1].name == image.base
            return replace(request, base=wanted.base) if same else request
    return None
