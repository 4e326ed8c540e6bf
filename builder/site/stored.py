"""Pages of the images in a store: the last one of each recipe and base, and what changed since the one before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from builder.errors import BuilderError
from builder.project import Project
from builder.site.facts import Layer, Override, Package, Page, Proof, changes_between, contents, mapping, package_of
from builder.smoke.image.opened import OpenedImage, open_image
from builder.smoke.results import read_results, results_folder
from builder.store.images import StoredImage, stored_images
from builder.store.store import Store

VENDOR = "What the image of a vendor brings is not listed."
_SERIES = 10
"""Earlier images that a page names."""


OptionsOf = Callable[[StoredImage], str | None]
"""The options that name an image on the command line; None when the project now plans another one."""


def stored_pages(store: Store, project: Project, options_of: OptionsOf) -> list[Page]:
    """The pages, by recipe and base. Images whose manifest or configuration has gone are left out."""
    own = (image for image in stored_images(store) if image.named)
    named = sorted(own, key=lambda image: (image.recipe, image.base, -image.used))
    pages = []
    for _, series in groupby(named, key=lambda image: (image.recipe, image.base)):
        opened = [(image, found) for image in series if (found := _opened(store, image)) is not None]
        if opened:
            pages.append(_page(store, project, opened, options_of(opened[0][0])))
    return pages


def layers_of(image: OpenedImage) -> list[Layer]:
    """The layers of an image with the names and titles in its history."""
    history = [
        item for item in image.config.get("history") or () if isinstance(item, dict) and not item.get("empty_layer")
    ]
    titles = [str(item.get("comment", "")) for item in history]
    titles += [""] * (len(image.layers) - len(titles))
    return [
        Layer(name or f"layer {number}", title, blob.digest, blob.size)
        for number, (name, title, blob) in enumerate(zip(image.names, titles, image.layers, strict=False), 1)
    ]


def overrides(project: Project, recipe: str) -> list[Override]:
    """The rules that a recipe of this project breaks; none for a recipe of another project."""
    from builder.knowledge.rule import find_rule

    if recipe not in project.recipe_names():
        return []
    return [Override(name, find_rule(name).title, reason) for name, reason in project.recipe(recipe).rules.items()]


def _opened(store: Store, image: StoredImage) -> OpenedImage | None:
    try:
        return open_image(store.root, image.digest)
    except BuilderError:
        return None


def _page(
    store: Store, project: Project, series: Sequence[tuple[StoredImage, OpenedImage]], options: str | None
) -> Page:
    (image, opened), older = series[0], series[1:]
    layers, packages = layers_of(opened), _packages(image)
    before = next((item for item in older if item[0].digest != image.digest), None)
    account = contents("", opened.config, layers, packages)
    if options is None:
        commands = {"Build what the recipe makes now": f"builder build --recipe {image.recipe} --base {image.base}"}
    else:
        push = f"builder push {options} REGISTRY/REPOSITORY:TAG"
        commands = {"Load it into docker": f"builder load {options}", "Publish it": push}
    return Page(
        recipe=image.recipe,
        base=image.base,
        digest=image.digest,
        place="the store of this machine",
        commands=commands,
        config=opened.config,
        layers=layers,
        packages=packages,
        note=f"Read from the names of the files that the layers were made from. {VENDOR}",
        proofs=[
            Proof("Inputs", "yes", "every input is named by its hash in the record of the image"),
            Proof("Published", "unknown", "it is in a store only: nobody else can have rebuilt it"),
        ],
        report=read_results(results_folder(store.root), image.digest),
        overrides=overrides(project, image.recipe),
        earlier=[(old.digest, str(found.config.get("created", ""))[:10]) for old, found in older][:_SERIES],
        previous=before[0].digest if before else None,
        changes=changes_between(contents("", before[1].config, layers_of(before[1]), _packages(before[0])), account)
        if before
        else (),
    )


def _packages(image: StoredImage) -> list[Package]:
    files = {str(name) for row in image.rows.values() for name in mapping(row.get("inputs"))}
    return sorted({package for file in files if (package := package_of(file)) is not None})
