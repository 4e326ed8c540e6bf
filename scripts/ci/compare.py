"""Compares the images that several machines built from one commit, using the records below a folder.

Each recipe and base must have the same plan and digest on every machine, and the digest in the registry if the image is
published. Otherwise the exit code is 8.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

from common import Record, records, set_outputs, summarize
from tag import plan_tag, target

from builder.errors import BuilderError, PinError
from builder.registry.client import Registry

DIFFERS = 8


def main() -> int:
    parser = argparse.ArgumentParser(prog="compare", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--published", default="", metavar="REGISTRY/REPOSITORY", help="compare with the published images, too"
    )
    arguments = parser.parse_args()
    found = records(arguments.folder)
    if not found:
        print(f"compare: no records below {arguments.folder}", file=sys.stderr)
        return 2
    try:
        return compare(found, arguments.published)
    except BuilderError as error:
        print(f"compare: {error}", file=sys.stderr)
        return int(error.code)


def compare(found: list[Record], repository: str) -> int:
    """Write the table to the summary and set the outputs of the step. Returns the exit code."""
    images: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in found:
        images[record.recipe, record.base].append(record)
    rows, differ = [], False
    for (recipe, base), same in images.items():
        digests, plans = ({getattr(record, name) for record in same} for name in ("digest", "plan"))
        note = f"{len(same)} built" + (f" by {len(plans)} plans" if len(plans) > 1 else "")
        known = {published(repository, record) for record in same} - {None} if repository else set()
        if repository:
            note += ", published" if known else ", not published"
        digests |= known
        several = len(digests) > 1 or len(plans) > 1
        differ |= several
        single = len(same) == 1 and not known
        verdict = "**differ**" if several else "single, not compared" if single else "equal"
        rows.append(f"| {recipe} | {base} | {note} | {verdict} | {'<br>'.join(sorted(digests))} |")
    summarize("\n".join(["| recipe | base | where | digests | |", "|---|---|---|---|---|", *rows]))
    set_outputs(images=[asdict(same[0]) for same in images.values()])
    return DIFFERS if differ else 0


def published(repository: str, record: Record) -> str | None:
    """The digest of a plan's image in the registry, or None. Raises NetworkError when the registry does not answer."""
    try:
        return Registry().manifest(target(repository, record.recipe, plan_tag(record.plan))).digest
    except PinError:
        return None


if __name__ == "__main__":
    sys.exit(main())
