"""Builds and tests one image, pushes it by digest with its test results (--push), and writes its record.

The exit codes are those of `builder`: 7 when a check fails, 8 when the digest is not the expected one.
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
    parser.add_argument("--base", default="", help="default: the base of the recipe")
    parser.add_argument("--tiers", default="static", help="tiers of smoke checks, separated by spaces; may be empty")
    parser.add_argument("--require", action="store_true", help="fail when a check cannot run on this machine")
    parser.add_argument("--serve", choices=("small", "recipe"), help="which model the gpu tier serves")
    parser.add_argument("--peer", metavar="ADDRESS", help="the second Spark for the gpu tier")
    parser.add_argument("--nccl-tests", metavar="PROGRAM", help="the path of all_reduce_perf for the gpu tier")
    parser.add_argument("--expect", default="", metavar="DIGEST")
    parser.add_argument(
        "--push", default="", metavar="REGISTRY/REPOSITORY", help="push to REGISTRY/REPOSITORY/RECIPE, by digest"
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
    """Run the tiers; write their table to the summary, and JUnit and HTML files to the results folder.

    Raises CommandFailed when a check fails.
    """
    arguments.results.mkdir(parents=True, exist_ok=True)
    options = [word for tier in tiers for word in ("--tier", tier)]
    if arguments.require:
        options.append("--require")
    if "gpu" in tiers:
        gpu = {"--serve": arguments.serve, "--peer": arguments.peer, "--nccl-tests": arguments.nccl_tests}
        options += [word for name, value in gpu.items() if value for word in (name, value)]
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
