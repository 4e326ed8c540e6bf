"""`builder gc`: free space in the store."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from typing import Annotated

import typer

from builder.cli.options import JsonOption
from builder.cli.output import print_json, say, size
from builder.cli.request import open_store
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
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Delete nothing; print what would go.")] = False,
    json_: JsonOption = False,
) -> None:
    """Delete from the store what no kept image needs. A build fetches or builds deleted files again.

    The last image of each recipe and base is kept, with its layers and inputs; with --older-than, everything that was
    used since then too. Images that `test --tier cpu` unpacked are always deleted, files that a running builder needs
    never.
    """
    store = open_store()
    report = collect(store, Policy(keep_inputs=keep_inputs, older_than=age(older_than)), dry_run=dry_run)
    if report.busy:
        say("another builder uses this store: the files that it may need stay")
    if json_:
        print_json(_as_dict(report, dry_run))
        return
    _print(report)
    verb = "would be freed" if dry_run else "freed"
    print(f"{size(report.freed)} {verb} at {store.root}")


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


def _print(report: GcReport) -> None:
    for item in report.images:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(item["used"]))
        say(f"kept: {item['recipe']} on {item['base']}, {str(item['digest'])[:19]}, last used {used}")
    print(f"{'':10} {'removed':>8} {'bytes':>10} {'kept':>8} {'bytes':>10}")
    for kind, gone in report.removed.items():
        kept = report.kept[kind]
        row = f"{kind:10} {gone.count:>8} {size(gone.size):>10} {kept.count:>8} {size(kept.size + kept.linked):>10}"
        print(row + (f"  ({size(gone.linked)} more stay: other folders link to them)" if gone.linked else ""))


def _as_dict(report: GcReport, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "freed": report.freed,
        "removed": {kind: asdict(total) for kind, total in report.removed.items()},
        "kept": {kind: asdict(total) for kind, total in report.kept.items()},
        "images": report.images,
        "busy": report.busy,
    }
