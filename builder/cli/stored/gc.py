"""`builder gc`: free space in the store."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from typing import Annotated

import typer

from builder.cli.options import JsonOption
from builder.cli.output import print_json, print_line, say, size
from builder.cli.request import open_store
from builder.cli.stored.gc_cache import gc_cache
from builder.errors import UsageError
from builder.store.gc import collect
from builder.store.retention import GcReport, Policy

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def gc(
    keep_inputs: Annotated[
        bool, typer.Option("--keep-inputs", help="Keep every fetched file, for builds without network.")
    ] = False,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="Delete only what was last used before: 12h, 30d, 2w."),
    ] = None,
    max_used_space: Annotated[
        str | None,
        typer.Option(
            "--max-used-space", metavar="SIZE", help="Delete what was used longest ago, until SIZE is left: 50GB."
        ),
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option("--cache", metavar="REPO", help="Delete old layers of this layer cache instead."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Delete nothing; name what would go.")] = False,
    json_: JsonOption = False,
) -> None:
    """Delete from the store what no kept image needs. A build fetches or builds deleted files again.

    The last image of each recipe and base is kept, with its layers and inputs; with --older-than, everything that was
    used since then too. --max-used-space is stronger than these. Images that `test --tier cpu` unpacked are deleted
    unless one of the two keeps them, files that a running builder needs never.
    """
    if cache is not None:
        if max_used_space is not None or keep_inputs:
            raise UsageError(
                "--cache goes with --older-than alone", id="gc-cache-options", next="leave out the other options"
            )
        gc_cache(cache, age(older_than), dry_run=dry_run, json=json_)
        return
    store = open_store()
    policy = Policy(keep_inputs=keep_inputs, older_than=age(older_than), max_used=space(max_used_space))
    report = collect(store, policy, dry_run=dry_run)
    if report.busy:
        say("another builder uses this store: the files that it may need stay")
    if json_:
        print_json(_as_dict(report, dry_run))
        return
    _print(report, named=dry_run)
    verb = "would be freed" if dry_run else "freed"
    print_line(f"{size(report.freed)} {verb} at {store.root}", hang=2)


def age(text: str | None) -> float | None:
    """The seconds of an age such as 30d; None for None. Raises UsageError."""
    if text is None:
        return None
    parts = re.fullmatch(r"([0-9]{1,6})([smhdw])", text)
    if parts is None:
        raise UsageError(
            f"--older-than {text!r} is not an age",
            id="age-invalid",
            next="write a number and s, m, h, d or w, for example 30d",
        )
    return float(int(parts[1]) * _UNITS[parts[2]])


def space(text: str | None) -> int | None:
    """The bytes of a size such as 50GB, in powers of ten as they are printed; None for None. Raises UsageError."""
    if text is None:
        return None
    parts = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?([kMGT]?)B", text)
    if parts is None:
        raise UsageError(
            f"--max-used-space {text!r} is not a size",
            id="size-invalid",
            next="write a number and B, kB, MB, GB or TB, for example 50GB",
        )
    return int(float(parts[1]) * 1000 ** " kMGT".index(parts[2] or " "))


def _print(report: GcReport, *, named: bool) -> None:
    if named:
        for item in report.gone:
            print_line(f"{item.kind:10} {size(item.size):>10}  {item.digest[:19]:19}  {item.name}", hang=4)
    for image in report.images:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(image["used"]))
        say(f"kept: {image['recipe']} on {image['base']}, {str(image['digest'])[:19]}, last used {used}", hang=2)
    print(f"{'':10} {'removed':>8} {'bytes':>10} {'kept':>8} {'bytes':>10}")
    for kind, gone in report.removed.items():
        kept = report.kept[kind]
        row = f"{kind:10} {gone.count:>8} {size(gone.size):>10} {kept.count:>8} {size(kept.size + kept.linked):>10}"
        print_line(
            row + (f"  ({size(gone.linked)} more stay: other folders link to them)" if gone.linked else ""), hang=4
        )


def _as_dict(report: GcReport, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "freed": report.freed,
        "removed": {kind: asdict(total) for kind, total in report.removed.items()},
        "kept": {kind: asdict(total) for kind, total in report.kept.items()},
        "images": report.images,
        "gone": [asdict(item) for item in report.gone],
        "busy": report.busy,
    }
