"""The static tier: runs the checks that read an image without running it, and names those of every image."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from builder.digest import Digest
from builder.model.check import Check
from builder.smoke.check import CheckFailed, CheckNotRun, CheckPassed, bind_check, find_kind, run_check
from builder.smoke.image.index import Listener, ignore
from builder.smoke.image.opened import OpenedImage, open_image
from builder.smoke.image.scan import ScanOptions
from builder.smoke.image.tree import ImageTree, PathNotFound
from builder.smoke.report import Report
from builder.smoke.static import (
    config,
    cuda,
    files,
    layers,
    libraries,
    ownership,
    planned,
    programs,
    python,
    records,
    stack,
    structure,
)
from builder.smoke.static.context import Context, Reads

MODULES = (
    *(config, cuda, files, layers, libraries, ownership),
    *(planned, programs, python, records, stack, structure),
)
"""Importing these registers the kinds of static checks."""

ALWAYS = tuple(
    Check(id=kind if kind == "nothing-covered" else f"image-{kind}", tier="static", kind=kind)
    for kind in (
        "platform",
        "config",
        "settings",
        "layer-limit",
        "layer-size",
        "blobs",
        "parents-0755",
        "places",
        "owners",
        "no-setuid",
        "no-world-writable",
        "kinds",
        "preloads",
        "programs",
        "no-secrets",
        "no-bytecode",
        "elf-ours",
        "symbol-versions",
        "libraries",
        "mapped",
        "gpu-code",
        "ptx",
        "cuda-release",
        "flashinfer",
        "compile-jobs",
        "driver",
        "nccl-conf",
        "distributions",
        "records",
        "imports",
        "starts",
        "vllm-env",
        "unplanned",
        "nothing-covered",
    )
)
"""The checks of every image. A check of a layer, base or recipe with the same id replaces one of them."""


def run_static(
    layout: Path,
    manifest_digest: Digest | None,
    checks: Sequence[Check],
    *,
    base: int = 0,
    always: Sequence[Check] = ALWAYS,
    folder: Path | None = None,
) -> Report:
    """Run the static checks among `checks`, and those of every image, on one image.

    layout: an OCI layout, or a store. base: how many of the lowest layers are the base's; the others are ours.
    folder: for copies of files that checks read; default: the system's folder for temporary files.
    Raises InvalidError for an unknown kind of check, for wrong arguments, and for an unreadable image.
    """
    return check_image(open_image(layout, manifest_digest), checks, base=base, always=always, folder=folder)


def check_image(
    image: OpenedImage,
    checks: Sequence[Check],
    *,
    base: int = 0,
    always: Sequence[Check] = ALWAYS,
    folder: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    listener: Listener = ignore,
) -> Report:
    """`run_static` for an image that is already open, from a layout or from a registry. settings: those of the base,
    when they are known. listener: of layers read."""
    wanted = _wanted([check for check in checks if check.tier == "static"], always)
    reads = [_reads(check) for check in wanted]
    bound = [bind_check(check) for check in wanted]
    report = Report(image.digest)
    with tempfile.TemporaryDirectory(prefix="builder-smoke-", dir=folder) as kept:
        keep = {pattern for each, check in zip(reads, wanted, strict=True) for pattern in each.keeps(image, check.args)}
        scan = ScanOptions(
            *(any(getattr(each.scan, name) for each in reads) for name in ("elf", "secrets", "hash", "files"))
        )
        only = _layers(image, reads, base)
        tree = ImageTree.of_image(image, Path(kept), sorted(keep), scan, only, _until(image, wanted, reads), listener)
        context = Context(tree, base, settings)
        for check, function, each in zip(wanted, bound, reads, strict=True):
            report.results.append(run_check(check, partial(_call, function, context, each)))
    if tree.absent and "all" in (each.layers for each in reads):
        report.notes.append(f"{len(tree.absent)} of {len(image.layers)} layers (the base's) are not on this machine")
    return report


def _wanted(asked: Sequence[Check], always: Sequence[Check]) -> list[Check]:
    named = {check.id: check for check in asked}
    ids = {check.id for check in always}
    return [*(named.get(check.id, check) for check in always), *(check for check in asked if check.id not in ids)]


def _reads(check: Check) -> Reads:
    needs = find_kind(check).needs
    assert isinstance(needs, Reads)
    return needs


def _call(function: Callable[[Any], str | CheckPassed], context: Context, reads: Reads) -> str | CheckPassed:
    """A path that is not found fails a check, unless it may be in a layer that is not on this machine.

    A check of all our files does not pass while some of them were not read.
    """
    try:
        found = function(context)
        if reads.layers != "none" and not reads.one_path and context.unread:
            raise CheckNotRun(f"{context.unread} layers, which may not be the base's, are not on this machine")
        return found
    except PathNotFound as error:
        if context.tree.absent:
            raise CheckNotRun(f"{error}; the base's layers are not on this machine") from error
        raise CheckFailed(str(error)) from error


def _layers(image: OpenedImage, reads: Sequence[Reads], base: int) -> list[int]:
    """The layers to read. Layers of a remote base are not downloaded."""
    wanted = {each.layers for each in reads}
    if wanted <= {"none"}:
        return []
    return [
        number
        for number, blob in enumerate(image.layers)
        if number >= base or ("all" in wanted and blob.remote is None)
    ]


def _until(image: OpenedImage, checks: Sequence[Check], reads: Sequence[Reads]) -> list[str] | None:
    """The paths to look for from the top layer down, when a remote image is asked for nothing else."""
    asked = [(check, each) for check, each in zip(checks, reads, strict=True) if each.layers != "none"]
    if not any(blob.remote for blob in image.layers) or not all(each.one_path for _, each in asked):
        return None
    paths = [str(check.args.get("path") or "") for check, _ in asked]
    return paths if all(paths) else None
