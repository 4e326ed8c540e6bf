"""Builds one image, tests it, optionally pushes it by digest with its results, and writes a record of it.

Exit codes are those of `builder`: 7 when a check fails, 8 when the digest is not the expected one.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from common import CommandFailed, Record, builder, canonical_hash, on, set_outputs, summarize

DIFFERS = 8


def main() -> int:
    parser = argparse.ArgumentParser(prog="image", description=__doc__)
    parser.add_argument("--recipe", required=True)
    parser.add_argument("--base", default="", help="default: the recipe's own")
    parser.add_argument("--tiers", default="static", help="smoke check tiers, separated by spaces; may be empty")
    parser.add_argument("--require", action="store_true", help="a check that cannot run here is an error")
    parser.add_argument("--serve", choices=("small", "recipe"), help="the model that the gpu tier serves")
    parser.add_argument("--peer", metavar="ADDRESS", help="a second Spark for the gpu tier")
    parser.add_argument("--nccl-tests", metavar="PROGRAM", help="all_reduce_perf for the gpu tier")
    parser.add_argument("--expect", default="", metavar="DIGEST")
    parser.add_argument(
        "--push", default="", metavar="REGISTRY/REPOSITORY", help="push there, by digest, below its name"
    )
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER")
    arguments = parser.parse_args()
    try:
        return run(arguments)
    except CommandFailed as error:
        return error.code


def run(arguments: argparse.Namespace) -> int:
    recipe: str = arguments.recipe
    image = ("--recipe", recipe, *on(arguments.base))
    plan = json.loads(builder("plan", *image, "--json"))
    digest = builder("build", *image).strip()
    summarize(f"**{recipe}** on {plan['base']['name']}: `{digest}`")
    set_outputs(digest=digest)
    if arguments.expect and digest != arguments.expect:
        summarize(f"{recipe} is {digest}, expected {arguments.expect}")
        return DIFFERS
    if tiers := arguments.tiers.split():
        test(image, recipe, tiers, arguments)
    reference = None
    if arguments.push:
        results = ("--with-results",) if tiers else ()
        reference = builder("push", *image, *results, f"{arguments.push.lower()}/{recipe}").strip()
        set_outputs(reference=reference)
        if not reference.endswith(f"@{digest}"):
            summarize(f"{recipe} was pushed as {reference}, but is {digest}")
            return DIFFERS
    Record(recipe, plan["base"]["name"], canonical_hash(plan), digest, reference).write(arguments.results)
    print(digest)
    return 0


def test(image: tuple[str, ...], recipe: str, tiers: list[str], arguments: argparse.Namespace) -> None:
    """Run the tiers. Their table goes to the summary, the JUnit and HTML files to the results folder."""
    arguments.results.mkdir(parents=True, exist_ok=True)
    options = [word for tier in tiers for word in ("--tier", tier)]
    if arguments.require:
        options.append("--require")
    if "gpu" in tiers:
        asked = {"--serve": arguments.serve, "--peer": arguments.peer, "--nccl-tests": arguments.nccl_tests}
        options += [word for name, value in asked.items() if value for word in (name, value)]
    files = ("--junit", str(arguments.results / f"{recipe}.xml"), "--html", str(arguments.results / f"{recipe}.html"))
    failed = None
    try:
        table = builder("test", *image, *options, *files)
    except CommandFailed as error:
        table, failed = error.output, error
    summarize(f"```text\n{table.rstrip()}\n```")
    if failed is not None:
        raise failed


if __name__ == "__main__":
    sys.exit(main())
