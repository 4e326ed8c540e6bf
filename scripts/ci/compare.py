"""Compares the images that several machines built from one commit, using the records below a folder.

Each recipe and base must have the same plan and digest on every machine, and the digest in the registry if the image
is published. Otherwise the exit code is 8, also when fewer than --builds machines built an image. With --tested, one
of them must have run every check of the tiers static and cpu (7). With --matrix, the output of `matrix`, records of
other images are refused (3).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

from common import Record, records, set_outputs, summarize
from push import require_tests
from tag import plan_tag, published, target

from builder.errors import BuilderError, InvalidError
from builder.registry.client import Registry

DIFFERS = 8


def main() -> int:
    parser = argparse.ArgumentParser(prog="compare", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--published", default="", metavar="REGISTRY/REPOSITORY", help="compare with the published images, too"
    )
    parser.add_argument("--builds", type=int, default=1, metavar="N", help="how often each image must have been built")
    parser.add_argument("--tested", action="store_true", help="the tiers static and cpu must have run")
    parser.add_argument("--matrix", default="", metavar="JSON", help="the images that this run builds")
    arguments = parser.parse_args()
    try:
        found = records(arguments.folder)
        if not found:
            print(f"compare: no records below {arguments.folder}", file=sys.stderr)
            return 2
        if arguments.matrix:
            require_wanted(found, arguments.matrix)
        require_place(found, arguments.published)
        return compare(found, arguments.published, arguments.builds, tested=arguments.tested)
    except BuilderError as error:
        print(f"compare: {error}", file=sys.stderr)
        return int(error.code)


def require_wanted(found: list[Record], matrix: str) -> None:
    """Raises InvalidError for an image that no job was to build: any job can write a record."""
    wanted = {(recipe, job["group"]) for job in json.loads(matrix)["include"] for recipe in job["recipes"].split()}
    for record in found:
        if (record.recipe, record.base) not in wanted:
            what = f"{record.recipe} on {record.base}"
            raise InvalidError("is not an image of this run", id="record-unwanted", where=what)


def require_place(found: list[Record], repository: str) -> None:
    """Raises InvalidError for an image that is pushed somewhere else: any job can write a record."""
    for record in found:
        place = f"{repository.lower()}/{record.recipe}@{record.digest}"
        if repository and record.reference not in (None, place):
            raise InvalidError("is pushed to another repository", id="record-elsewhere", where=str(record.reference))


def compare(found: list[Record], repository: str, builds: int = 1, *, tested: bool = False) -> int:
    """Write the table to the summary and set the outputs of the step. Returns the exit code. Raises SmokeError."""
    images: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in found:
        images[record.recipe, record.base].append(record)
    rows, differ = [], False
    for (recipe, base), same in images.items():
        digests, plans = ({getattr(record, name) for record in same} for name in ("digest", "plan"))
        note = f"{len(same)} built" + (f" by {len(plans)} plans" if len(plans) > 1 else "")
        known = known_digests(repository, same) if repository else set()
        if repository:
            note += ", published" if known else ", not published"
        digests |= known
        several = len(digests) > 1 or len(plans) > 1
        few = len(same) < builds
        differ |= several or few
        single = len(same) == 1 and not known
        verdict = (
            "**differ**"
            if several
            else f"**fewer than {builds}**"
            if few
            else "single, not compared"
            if single
            else "equal"
        )
        rows.append(f"| {recipe} | {base} | {note} | {verdict} | {'<br>'.join(sorted(digests))} |")
    summarize("\n".join(["| recipe | base | where | digests | |", "|---|---|---|---|---|", *rows]))
    if differ:
        return DIFFERS
    best = [max(same, key=lambda record: (len(record.tested), record.reference or "")) for same in images.values()]
    if tested:
        require_tests(best)
    names = [(record, (record.reference or "").partition("@")[0]) for record in best]
    subjects = [
        {"recipe": record.recipe, "base": record.base, "digest": record.digest, "name": name} for record, name in names
    ]
    set_outputs(images=[asdict(record) for record in best], subjects=subjects)
    return 0


def known_digests(repository: str, same: list[Record]) -> set[str]:
    """The digests that the registry has for the plans of records. Raises NetworkError."""
    registry = Registry()
    tags = {target(repository, record.recipe, plan_tag(record.plan)) for record in same}
    return {digest for tag in tags if (digest := published(registry, tag)) is not None}


if __name__ == "__main__":
    sys.exit(main())
