"""`builder images`: what is in the store."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from builder.cli.options import JsonOption
from builder.cli.output import print_json, print_table, say, size
from builder.cli.request import open_store
from builder.errors import BuilderError
from builder.project import Project
from builder.smoke.results import read_results, results_folder
from builder.store.images import StoredImage, stored_images
from builder.store.store import Store

COLUMNS = ("recipe", "base", "digest", "used", "size", "checks", "pushed", "profile")


def images(
    recipe: Annotated[str | None, typer.Option("--recipe", "-r", help="Only the images of this recipe.")] = None,
    json_: JsonOption = False,
) -> None:
    """List the images in the store, the last used first.

    Size: of the layers that were made here. Checks: how many passed and failed in the last `builder test`. An image
    whose layers are gone (`builder gc`) is left out.
    """
    store = open_store()
    if recipe is not None and recipe not in {image.recipe for image in stored_images(store)}:
        Project().recipe(recipe)
    rows = [row for image in stored_images(store) if recipe in (None, image.recipe) and (row := _row(store, image))]
    if json_:
        print_json(rows)
    elif rows:
        print_table([_short(row) for row in rows], COLUMNS, needed=2)
    else:
        say(f"no image{f' of {recipe}' if recipe else ''} in {store.root}; next: builder build {recipe or 'RECIPE'}")


def _row(store: Store, image: StoredImage) -> dict[str, Any] | None:
    records = [store.layer(key) for key in image.layers.values() if key]
    if None in records:
        return None
    try:
        report = read_results(results_folder(store.root), image.digest)
    except BuilderError:
        # The results are damaged: as if there were none.
        report = None
    return {
        "recipe": image.recipe,
        "base": image.base,
        "profile": image.profile,
        "digest": image.digest,
        "used": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(image.used)),
        "size": sum(record.size for record in records if record is not None),
        "checks": {"passed": report.count("pass"), "failed": report.count("fail")} if report is not None else None,
        "pushed": list(image.pushed),
    }


def _short(row: dict[str, Any]) -> dict[str, Any]:
    checks = row["checks"]
    return {
        **row,
        "digest": row["digest"][:19],
        "used": row["used"][:16].replace("T", " "),
        "size": size(row["size"]),
        "checks": f"{checks['passed']} passed, {checks['failed']} failed" if checks else None,
    }
