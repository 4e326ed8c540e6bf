"""`builder site`: write a catalogue of images as HTML pages."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from builder.cli.options import COMPRESSION, PLATFORM
from builder.cli.output import counted, say, size
from builder.cli.proof.keys import read_public_keys
from builder.cli.request import PlanRequest, open_store
from builder.cli.stored.offers import request_of
from builder.errors import UsageError
from builder.project import Project
from builder.registry.client import Registry
from builder.site.pages import render, write_site
from builder.site.remote import remote_page
from builder.site.stored import stored_pages
from builder.store.images import StoredImage


def site(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder, or an older site.")],
    references: Annotated[
        list[str] | None,
        typer.Argument(metavar="REF", help="Images in registries, instead of those of the store."),
    ] = None,
    signed_by: Annotated[
        list[Path] | None,
        typer.Option("--signed-by", help="Show what this public key signed about the images. May be repeated."),
    ] = None,
) -> None:
    """Write a catalogue of images: a page for each, with its pull command, tests, proof, layers and packages.

    Without REF, the last image of each recipe and base in the store. The pages need no server and no network.
    """
    if ":" in str(folder):
        raise UsageError(
            "DIR comes before the images",
            id="site-folder-is-image",
            where=str(folder),
            next=f"builder site NEW-DIR {folder}",
        )
    keys = read_public_keys(signed_by)
    if keys and not references:
        raise UsageError(
            "statements are attached to images in registries",
            id="site-keys-without-images",
            next="name images, or no key",
        )
    project = Project()
    if references:
        client = Registry()
        pages = [remote_page(text, project, keys, client) for text in dict.fromkeys(references)]
    else:
        pages = stored_pages(open_store(), project, lambda image: _options(image, project))
    write_site(folder, render(pages, size))
    say(f"{counted(len(pages), 'image')}; open this file in a browser:")
    print(folder / "index.html")


def _options(image: StoredImage, project: Project) -> str | None:
    request = request_of(image, project, PlanRequest(image.recipe, image.base, (), None, PLATFORM, COMPRESSION))
    return shlex.join(request.words()) if request is not None else None
