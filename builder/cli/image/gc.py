"""`builder gc`."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from builder.cli.options import JsonOption, open_store, print_json, say, size
from builder.errors import UsageError

if TYPE_CHECKING:
    from builder.store.gc import Account

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def gc(
    keep_inputs: Annotated[
        bool, typer.Option("--keep-inputs", help="Keep every fetched file, for builds without network.")
    ] = False,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="Remove only what was last used before: 12h, 30d, 2w."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Remove nothing; say what would go.")] = False,
    json_: JsonOption = False,
) -> None:
    """Free space in the store: what no kept image needs goes. Everything can be fetched or built again.

    Kept are the last image of each recipe and base and all that it is made of and from; with --older-than, whatever
    was used since. Images unpacked for `test --tier cpu` go in any case. What a running builder needs stays.
    """
    from builder.store.gc import Rules, collect

    store = open_store()
    account = collect(store, Rules(keep_inputs=keep_inputs, older_than=age(older_than)), dry_run=dry_run)
    if account.busy:
        say("another builder uses this store: what it may need stays")
    if json_:
        print_json(_result(account, dry_run))
        return
    _print(account)
    done = "would be freed" if dry_run else "freed"
    print(f"{size(account.freed)} {done} at {store.root}")


def age(text: str | None) -> float | None:
    """Seconds of an age as people write it. Raises UsageError."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", text)
    if found is None:
        raise UsageError(f"--older-than {text!r} is not an age", next="write a number and s, m, h, d or w: 30d")
    return float(int(found[1]) * _UNITS[found[2]])


def _print(account: Account) -> None:
    for item in account.images:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(item["used"]))
        say(f"kept: {item['recipe']} on {item['base']}, {str(item['digest'])[:19]}, last used {used}")
    print(f"{'':10} {'removed':>8} {'bytes':>10} {'kept':>8} {'bytes':>10}")
    for kind, gone in account.removed.items():
        kept = account.kept[kind]
        row = f"{kind:10} {gone.count:>8} {size(gone.size):>10} {kept.count:>8} {size(kept.size + kept.linked):>10}"
        print(row + (f"  ({size(gone.linked)} more stay: other folders link to them)" if gone.linked else ""))


def _result(account: Account, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "freed": account.freed,
        "removed": {kind: asdict(tally) for kind, tally in account.removed.items()},
        "kept": {kind: asdict(tally) for kind, tally in account.kept.items()},
        "images": account.images,
        "busy": account.busy,
    }
