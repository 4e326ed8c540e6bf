"""Compares images that several machines built, by the records they left below a folder.

The same plan must have one digest everywhere, also in the registry when it was published. Exit code 8 when not.
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
from builder.oci.registry import Registry

DIFFERS = 8


def main() -> int:
    parser = argparse.ArgumentParser(prog="compare", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--published", default="", metavar="REGISTRY/REPOSITORY", help="also compare with what is there"
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
    """Write the table and the step's outputs; returns the exit code."""
    by_plan: dict[str, list[Record]] = defaultdict(list)
    for record in found:
        by_plan[record.plan].append(record)
    rows, differ = [], False
    for same in by_plan.values():
        digests = {record.digest for record in same}
        note = f"{len(same)} built"
        if repository:
            known = published(repository, same[0])
            note += ", published" if known else ", not published"
            digests |= {known} if known else set()
        differ |= len(digests) > 1
        verdict = "**differ**" if len(digests) > 1 else "equal"
        rows.append(f"| {same[0].recipe} | {same[0].base} | {note} | {verdict} | {'<br>'.join(sorted(digests))} |")
    summarize("\n".join(["| recipe | base | where | digests | |", "|---|---|---|---|---|", *rows]))
    set_outputs(images=[asdict(same[0]) for same in by_plan.values()])
    return DIFFERS if differ else 0


def published(repository: str, record: Record) -> str | None:
    """The digest that the registry has for a plan; None when it has none. Raises NetworkError when it does not say."""
    try:
        return Registry().manifest(target(repository, record.recipe, plan_tag(record.plan))).digest
    except PinError:
        return None


if __name__ == "__main__":
    sys.exit(main())
