"""What `builder test` tests: the built image of a recipe, an image in a registry, or an OCI layout."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from builder.cli.image.built import built_image, image_name, load_into_docker
from builder.cli.output import say
from builder.cli.request import PlanRequest, open_store
from builder.digest import Digest
from builder.errors import NetworkError, PinError, UsageError
from builder.mirror.basefetch import pinned_base
from builder.model.check import Check
from builder.model.reference import Reference
from builder.oci.assemble import BaseImage
from builder.plan.imageconfig import BASE_DIGEST
from builder.project import Project
from builder.smoke.gpu.machine import GpuImage
from builder.smoke.image.opened import OpenedImage, open_image
from builder.smoke.image.remote import fetch_image, remote_image
from builder.smoke.plan_checks import checks_of, planned_check
from builder.smoke.results import results_folder
from builder.smoke.structure_file import structure_checks
from builder.store.store import Store


@dataclass(frozen=True)
class Subject:
    """An image under test and its checks. layout: the folder with its blobs. results: the folder of its results.

    base_layers: how many of the lowest layers are those of a pinned base; the others were made on top of it. base: it,
    when it is known. gpu: the image as docker gets it; None for a layout, which docker cannot run.
    """

    name: str
    image: OpenedImage
    checks: tuple[Check, ...]
    layout: Path
    results: Path
    base_layers: int
    base: BaseImage | None
    gpu: GpuImage | None = None


def find_subject(
    reference: str | None, request: PlanRequest | None, structure: Sequence[Path], *, whole: bool
) -> Subject:
    """The subject of the command line, with the checks of its plan and of structure files.

    reference: an image or oci:DIR; None for the built image of the request. whole: fetch the layers that are in a
    registry only, which running the image needs; otherwise they are read one by one and not kept. Raises BuilderError.
    """
    if reference is None:
        if request is None:
            raise UsageError("no image to test", id="test-image-not-given", next="name a recipe (--recipe NAME) or REF")
        subject = _built(request, whole)
    else:
        is_layout = reference.startswith("oci:")
        subject = _layout(reference, request) if is_layout else _remote(reference, request, whole)
    files = tuple(check for path in structure for check in structure_checks(path, subject.image.env))
    return Subject(**{**vars(subject), "checks": subject.checks + files})


def _built(request: PlanRequest, whole: bool) -> Subject:
    built, store = built_image(request, Project())
    if whole and built.image.base is not None:
        _fetch_base(built.image.base.reference, store)
    digest, name = built.image.digest, image_name(built)
    docker = GpuImage(
        name, frozenset({digest, built.image.config_digest}), lambda: load_into_docker(built, store, name)
    )
    image = open_image(store.root, digest).knowing({layer.digest: layer.diff_id for layer in built.image.layers})
    diff_ids = {name: record.diff_id for name, record in built.records.items()}
    checks = (*checks_of(built.plan), planned_check(built.plan, diff_ids, built.image.base))
    below, base = sum(layer.of_base for layer in built.image.layers), built.image.base
    return Subject(
        f"{request.recipe} {digest}", image, checks, store.root, results_folder(store.root), below, base, docker
    )


def _fetch_base(reference: str, store: Store) -> None:
    """Fetch the layers of a base, on which an image was built without them."""
    try:
        fetch_image(Reference.parse(reference), store)
    except (NetworkError, PinError) as error:
        say(f"the layers of the base cannot be fetched, so the image cannot run: {error.what}")


def _layout(reference: str, request: PlanRequest | None) -> Subject:
    folder = Path(reference.removeprefix("oci:"))
    image = open_image(folder)
    checks, below, base = _planned(image, request, open_store())
    return Subject(reference, image, checks, folder, results_folder(folder), below, base)


def _remote(text: str, request: PlanRequest | None, whole: bool) -> Subject:
    reference = Reference.parse(text)
    store = open_store()
    image = fetch_image(reference, store) if whole else remote_image(reference)
    checks, below, base = _planned(image, request, store)
    docker = _pulled(reference, image.digest, image.config_digest)
    return Subject(str(reference), image, checks, store.root, results_folder(store.root), below, base, docker)


def _planned(
    image: OpenedImage, request: PlanRequest | None, store: Store
) -> tuple[tuple[Check, ...], int, BaseImage | None]:
    """The checks of the image's plan, how many of its lowest layers are those of a pinned base, and this base.

    Without a recipe, the base is the one of this project whose pin the image's label names.
    """
    if request is None:
        named = (image.settings.get("Labels") or {}).get(BASE_DIGEST)
        pins = (base.pin for base in Project().bases.values() if named is not None)
        pin = next((pin for pin in pins if pin and pin.manifest and named in (pin.manifest, pin.index)), None)
        base = _base(store, pin.image, pin.manifest) if pin is not None else None
        return tuple(_replaced(image)), _below(image, base), base
    plan = request.plan(Project())
    base = _base(store, plan.base_image, plan.base_manifest) if plan.base_image is not None else None
    records = ((layer.id, store.layer(layer.key)) for layer in plan.layers if layer.producer != "config")
    diff_ids = {name: record.diff_id for name, record in records if record is not None}
    return (*checks_of(plan), planned_check(plan, diff_ids, base)), _below(image, base), base


def _replaced(image: OpenedImage) -> Iterator[Check]:
    """The check of covered files, with what the layers of this project that the history names replace."""
    project = Project()
    declared: dict[str, JsonValue] = {
        # The site folder depends on the base.
        name: [re.sub(r"\{\{.*?\}\}", "*", item.path) for item in project.layer(name).definition.replacements]
        for name in set(image.names) & set(project.layer_names())
    }
    if any(declared.values()):
        yield Check(id="nothing-covered", tier="static", kind="nothing-covered", args={"declared": declared})


def _base(store: Store, name: str, manifest: Digest | None) -> BaseImage | None:
    """A base by its pin; None when it can be had neither in the store nor in its registry."""
    try:
        return pinned_base(Reference.parse(f"{name}@{manifest}"), store)
    except (NetworkError, PinError) as error:
        say(f"the base cannot be compared: {error.what}")
        return None


def _below(image: OpenedImage, base: BaseImage | None) -> int:
    """How many of the image's lowest layers are the base's: all of the base's, or none."""
    layers = [layer.digest for layer in base.manifest.layers] if base is not None else []
    return len(layers) if [blob.digest for blob in image.layers[: len(layers)]] == layers else 0


def _pulled(reference: Reference, digest: Digest, config: Digest) -> GpuImage:
    """An image in a registry, which docker pulls by digest."""
    name = reference.pinned(digest)

    def pull() -> None:
        # Imported here: the docker SDK takes 0.3 s.
        from builder.engine.daemon import Daemon

        with Daemon() as daemon:
            daemon.pull(name)

    return GpuImage(name, frozenset({digest, config}), pull)
