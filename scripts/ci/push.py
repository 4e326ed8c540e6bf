"""Pushes the images of records by digest, with their test results, and completes the records.

It runs after the tests, in the job that built the images, and needs a login. An image of which a check failed or did
not run is refused (exit code 7), a damaged record too (3), and an image that the store has under another digest (8).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from common import CommandFailed, Record, builder, records, set_outputs, summarize

from builder.errors import BuilderError, SmokeError

DIFFERS = 8
REQUIRED = ("static", "cpu")


def main() -> int:
    parser = argparse.ArgumentParser(prog="push", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("repository", metavar="REGISTRY/REPOSITORY", help="push to REGISTRY/REPOSITORY/RECIPE")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER")
    parser.add_argument(
        "--sboms", type=Path, metavar="FOLDER", help="also write each image's SBOM (SPDX) to this folder"
    )
    arguments = parser.parse_args()
    try:
        found = records(arguments.results)
        if not found:
            print(f"push: no image has passed, below {arguments.results}", file=sys.stderr)
            return 2
        require_tests(found)
        for record in found:
            pushed(record, arguments.repository.lower()).write(arguments.results)
            if arguments.sboms:
                write_sbom(record, arguments.sboms)
    except BuilderError as error:
        print(f"push: {error}", file=sys.stderr)
        return int(error.code)
    except CommandFailed as error:
        return error.code
    return 0


def require_tests(found: list[Record]) -> None:
    """Raises SmokeError unless every check of the required tiers ran for every image."""
    untested = [record.recipe for record in found if not set(REQUIRED) <= set(record.tested)]
    if untested:
        raise SmokeError(
            f"not all checks of the tiers {' and '.join(REQUIRED)} ran: {', '.join(untested)}",
            id="publish-untested",
            next="build with TIERS='static cpu' and REQUIRE=true",
        )


def pushed(record: Record, repository: str) -> Record:
    """Push one image. Raises CommandFailed, also when it is pushed under another digest than the tested one."""
    # Without a digest, push would write the tag `latest`.
    target = f"{repository}/{record.recipe}@{record.digest}"
    reference = builder("push", *named(record), "--with-results", target).strip()
    set_outputs(reference=reference)
    if not reference.endswith(f"@{record.digest}"):
        summarize(f"{record.recipe} was pushed as {reference}, but {record.digest} was tested")
        raise CommandFailed(DIFFERS)
    return replace(record, reference=reference)


def write_sbom(record: Record, folder: Path) -> None:
    """Write the SBOM of an image, for a signature that names it."""
    folder.mkdir(parents=True, exist_ok=True)
    text = builder("sbom", *named(record), "--format", "spdx")
    (folder / f"{record.recipe}.spdx.json").write_text(text, "utf-8")


def named(record: Record) -> tuple[str, ...]:
    """The options that name the image of a record."""
    return ("--recipe", record.recipe, "--base", record.base)


if __name__ == "__main__":
    sys.exit(main())
