"""What `builder test` tests: the built image of a recipe, an image in a registry, or an OCI layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.cli.image.built import built_image, image_name, load_into_docker
from builder.cli.request import PlanRequest, open_store
from builder.digest import Digest
from builder.errors import UsageError
from builder.model.check import Check
from builder.model.reference import Reference
from builder.project import Project
from builder.smoke.gpu.machine import GpuImage
from builder.smoke.image.opened import OpenedImage, open_image
from builder.smoke.image.remote import built_layers, fetch_image, remote_image
from builder.smoke.plan_checks import checks_of
from builder.smoke.results import results_folder
from builder.smoke.structure_file import structure_checks


@dataclass(frozen=True)
class Subject:
    """An image under test and its checks. layout: the folder with its blobs. results: the folder of its results.

    own_layers: digests of the layers that were built here; None when that is unknown. gpu: the image as docker gets
    it; None for a layout, which docker cannot run.
    """

    name: str
    image: OpenedImage
    checks: tuple[Check, ...]
    layout: Path
    results: Path
    own_layers: set[Digest] | None
    gpu: GpuImage | None = None


def find_subject(
    reference: str | None, request: PlanRequest | None, structure: Sequence[Path], *, whole: bool
) -> Subject:
    """The subject of the command line, with the checks of its plan and of structure files.

    reference: an image or oci:DIR; None for the built image of the request. whole: fetch all layers of an image in a
    registry, which running it needs; otherwise layers are read one by one and not kept. Raises BuilderError.
    """
    if reference is None:
        if request is None:
            raise UsageError("no image to test", id="test-image-not-given", next="name a recipe (--recipe NAME) or REF")
        subject = _built(request)
    else:
        checks = tuple(checks_of(request.plan(Project()))) if request is not None else ()
        subject = _layout(reference, checks) if reference.startswith("oci:") else _remote(reference, checks, whole)
    files = tuple(check for path in structure for check in structure_checks(path, subject.image.env))
    return Subject(**{**vars(subject), "checks": subject.checks + files})


def _built(request: PlanRequest) -> Subject:
    built, store = built_image(request, Project())
    digest, name = built.image.digest, image_name(built)
    own = {layer.digest for layer in built.image.layers if not layer.of_base}
    docker = GpuImage(
        name, frozenset({digest, built.image.config_digest}), lambda: load_into_docker(built, store, name)
    )
    image, checks = open_image(store.root, digest), tuple(checks_of(built.plan))
    return Subject(f"{request.recipe} {digest}", image, checks, store.root, results_folder(store.root), own, docker)


def _layout(reference: str, checks: tuple[Check, ...]) -> Subject:
    folder = Path(reference.removeprefix("oci:"))
    image = open_image(folder)
    return Subject(reference, image, checks, folder, results_folder(folder), built_layers(image))


def _remote(text: str, checks: tuple[Check, ...], whole: bool) -> Subject:
    reference = Reference.parse(text)
    store = open_store()
    image = fetch_image(reference, store) if whole else remote_image(reference)
    docker = _pulled(reference, image.digest, image.config_digest)
    return Subject(str(reference), image, checks, store.root, results_folder(store.root), built_layers(image), docker)


def _pulled(reference: Reference, digest: Digest, config: Digest) -> GpuImage:
    """An image in a registry, which docker pulls by digest."""
    name = f"{reference.registry}/{reference.repository}@{digest}"

    def pull() -> None:
        # Imported here: the docker SDK takes 0.3 s.
        from builder.engine.daemon import Daemon

        with Daemon() as daemon:
            daemon.pull(name)

    return GpuImage(name, frozenset({digest, config}), pull)
