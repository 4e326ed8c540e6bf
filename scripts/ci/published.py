"""Writes the records of published images as the output `images`: of one recipe, or of all that are published.

The exit code is 4 when nothing is published for this commit.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from common import REPOSITORY, CommandFailed, Record, builder, canonical_hash, set_outputs, summarize
from matrix import targets
from tag import plan_tag, published, target

from builder.errors import BuilderError
from builder.registry.client import Registry

PIN = 4


def main() -> int:
    parser = argparse.ArgumentParser(prog="published", description=__doc__)
    parser.add_argument("repository", metavar="REGISTRY/REPOSITORY")
    parser.add_argument("--recipe", default="", help="default: all")
    arguments = parser.parse_args()
    try:
        wanted = [item for item in targets(REPOSITORY).items() if arguments.recipe in ("", item[0])]
        with ThreadPoolExecutor(4) as workers:
            found = list(workers.map(lambda item: record(arguments.repository, *item), wanted))
    except BuilderError as error:
        print(f"published: {error}", file=sys.stderr)
        return int(error.code)
    except CommandFailed as error:
        return error.code
    images = [asdict(item) for item in found if item is not None]
    summarize(f"{len(images)} of {len(found)} images of this commit are published.")
    set_outputs(images=images)
    return 0 if images else PIN


def record(repository: str, recipe: str, base: str) -> Record | None:
    """The record of a recipe's image, or None when it is not published. Raises CommandFailed, NetworkError."""
    plan = json.loads(builder("plan", "--recipe", recipe, "--base", base, "--json"))
    key = canonical_hash(plan)
    digest = published(Registry(), target(repository, recipe, plan_tag(key)))
    if digest is None:
        return None
    return Record(recipe, plan["base"]["name"], key, digest, f"{repository.lower()}/{recipe}@{digest}")


if __name__ == "__main__":
    sys.exit(main())
