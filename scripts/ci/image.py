"""Builds and tests images, and writes a record of each that passes. `push` sends them later.

The images share a base, so that their layers are made once. A recipe that fails does not stop the others. The exit
codes are those of `builder`, of the first failure: 5 when the disk is too small, 7 when a check fails, 8 when the
digest is not the expected one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import CommandFailed, Record, builder, canonical_hash, on, set_outputs, summarize

from builder.cli.request import open_store
from builder.digest import Digest
from builder.store.store import Store

DISK, DIFFERS = 5, 8
# Bytes on the disk for each byte of inputs, by measurement of the hermetic images: inputs and layers while an image is
# built; layers and the unpacked image while the cpu tier runs, when the inputs have gone.
BUILT, RUN = 2.2, 3.2
# Images of vendors are 10 GB of layers, and 25 GB unpacked.
VENDOR_BUILT, VENDOR_RUN = 4e9, 40e9


@dataclass(frozen=True)
class Image:
    """An image to build. options: those that name it for commands of `builder`. plan: the JSON of `plan`."""

    recipe: str
    options: tuple[str, ...]
    plan: dict[str, Any]

    @property
    def inputs(self) -> dict[str, int]:
        """Sizes of the inputs of its layers, by hash."""
        return {item["sha256"]: item["size"] for layer in self.plan["layers"] for item in layer.get("inputs", [])}


def main() -> int:
    parser = argparse.ArgumentParser(prog="image", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recipe", action="append", required=True, help="may be repeated")
    parser.add_argument("--base", default="", help="default: the base of each recipe")
    parser.add_argument("--tiers", default="static", help="tiers of smoke checks, separated by spaces; may be empty")
    parser.add_argument("--require", action="store_true", help="fail when a check cannot run on this machine")
    parser.add_argument("--drop-inputs", action="store_true", help="delete inputs before the cpu tier: on small disks")
    parser.add_argument("--serve", choices=("small", "recipe"), help="which model the gpu tier serves")
    parser.add_argument("--peer", metavar="ADDRESS", help="the second Spark for the gpu tier")
    parser.add_argument("--nccl-tests", metavar="PROGRAM", help="the path of all_reduce_perf for the gpu tier")
    parser.add_argument("--policy", default="", metavar="FILE", help="take layers from the cache as this file allows")
    parser.add_argument("--expect", default="", metavar="DIGEST", help="the digest of the only image")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.expect and len(arguments.recipe) > 1:
        parser.error("--expect is the digest of one image")
    return run(arguments)


def run(arguments: argparse.Namespace) -> int:
    """Build all images, then test tier by tier: inputs are in the way only until the last image is built."""
    codes: list[int] = []
    tiers: list[str] = arguments.tiers.split()
    images, digests = planned(arguments, codes), {}
    if not enough_space(images, tiers):
        return codes[0] if codes else DISK
    for image in images:
        try:
            digests[image.recipe] = built(image, arguments.expect, arguments.policy)
        except CommandFailed as error:
            codes.append(error.code)
    passed = [image for image in images if image.recipe in digests]
    for tier in tiers:
        if tier == "cpu" and arguments.drop_inputs:
            drop_inputs(images)
        passed = [image for image in passed if test(image, tier, arguments, codes)]
    for image in passed:
        tested = tiers if arguments.require else []
        key = canonical_hash(image.plan)
        Record(image.recipe, image.plan["base"]["name"], key, digests[image.recipe], None, tested).write(
            arguments.results
        )
        print(digests[image.recipe])
    return codes[0] if codes else 0


def planned(arguments: argparse.Namespace, codes: list[int]) -> list[Image]:
    """The images with their plans; codes of failures are appended to `codes`."""
    found = []
    for recipe in dict.fromkeys(arguments.recipe):
        options = ("--recipe", recipe, *on(arguments.base))
        try:
            found.append(Image(recipe, options, json.loads(builder("plan", *options, "--json"))))
        except CommandFailed as error:
            codes.append(error.code)
    return found


def enough_space(images: list[Image], tiers: list[str]) -> bool:
    """Whether the disk of the store has room; otherwise, say what is missing."""
    root = open_store().root
    free, needed = shutil.disk_usage(root).free, space(images, tiers, open_store())
    if needed > free:
        print(
            f"image: {needed / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free at {root}\n"
            "  next:  name fewer tiers, or point BUILDER_STORE at a larger disk",
            file=sys.stderr,
        )
    return needed <= free


def space(images: list[Image], tiers: list[str], store: Store) -> float:
    """Bytes that building and testing need beside what the store has; images of one base share their inputs."""
    inputs = {name: size for image in images for name, size in image.inputs.items()}
    missing = sum(size for name, size in inputs.items() if not store.has(Digest.from_hex(name)))
    largest = max((sum(image.inputs.values()) for image in images), default=0)
    vendor = any(image.plan["base"].get("image") for image in images)
    run = max((RUN - 1) * largest + missing, VENDOR_RUN if vendor else 0.0) if "cpu" in tiers else 0.0
    return max(BUILT * missing, VENDOR_BUILT if vendor else 0.0, run)


def built(image: Image, expected: str, policy: str) -> str:
    """Build an image and return its digest. Raises CommandFailed, also for another digest than the expected one."""
    digest = builder("build", *image.options, *(("--policy", policy) if policy else ())).strip()
    summarize(f"**{image.recipe}** on {image.plan['base']['name']}: `{digest}`")
    set_outputs(digest=digest)
    if expected and digest != expected:
        summarize(f"{image.recipe} is {digest}, expected {expected}")
        raise CommandFailed(DIFFERS)
    return digest


def drop_inputs(images: list[Image]) -> None:
    """Delete the inputs of images from the store; `push` fetches again what it describes."""
    store = open_store()
    for name in {name for image in images for name in image.inputs}:
        store.blob(Digest.from_hex(name)).unlink(missing_ok=True)


def test(image: Image, tier: str, arguments: argparse.Namespace, codes: list[int]) -> bool:
    """Run one tier; write its table to the summary, and JUnit and HTML files to the results folder."""
    arguments.results.mkdir(parents=True, exist_ok=True)
    options = ["--tier", tier, *(["--require"] if arguments.require else [])]
    if tier == "gpu":
        gpu = {"--serve": arguments.serve, "--peer": arguments.peer, "--nccl-tests": arguments.nccl_tests}
        options += [word for name, value in gpu.items() if value for word in (name, value)]
    report = str(arguments.results / f"{image.recipe}-{tier}")
    failed = None
    try:
        table = builder("test", *image.options, *options, "--junit", f"{report}.xml", "--html", f"{report}.html")
    except CommandFailed as error:
        table, failed = error.output, error
        codes.append(error.code)
    summarize(f"```text\n{table.rstrip()}\n```")
    if tier == "cpu":
        # Removes the unpacked image.
        builder("gc", "--keep-inputs", quiet=True)
    return failed is None


if __name__ == "__main__":
    sys.exit(main())
