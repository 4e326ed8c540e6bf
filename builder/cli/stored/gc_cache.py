"""`builder gc --cache`: old entries of a layer cache."""

from __future__ import annotations

from datetime import UTC, datetime

from builder.cache.cache import cache_place
from builder.cache.expire import delete, older, survey
from builder.cli.output import counted, print_json, print_line, say, size
from builder.errors import UsageError
from builder.registry.client import Registry
from builder.text import one_line


def gc_cache(cache: str, seconds: float | None, *, dry_run: bool, json: bool) -> None:
    """Delete, or name, the entries that were built longer ago. Raises UsageError and NetworkError."""
    place = cache_place(cache)
    if seconds is None:
        raise UsageError(
            "--cache needs an age",
            id="gc-cache-without-age",
            cause="a registry does not say when an entry was used",
            next=f"builder gc --cache {cache} --older-than 90d --dry-run",
        )
    client = Registry()
    found = survey(client, place)
    gone = older(found, seconds, datetime.now(UTC))
    if not dry_run:
        delete(client, place, gone)
    rows = [
        {
            "layer": item.name,
            "key": item.key,
            "size": item.size,
            "built": item.built.isoformat() if item.built else None,
        }
        for item in gone
    ]
    if json:
        print_json({"dry_run": dry_run, "cache": cache, "removed": rows, "kept": len(found) - len(gone)})
        return
    for item, row in zip(gone, rows, strict=True):
        name = one_line(item.name)[:64] or "?"
        print_line(f"{name:24} {size(item.size):>10}  {item.key[:12]}  {row['built'] or '-'}", hang=4)
    verb = "would be deleted" if dry_run else "deleted"
    total = size(sum(item.size for item in gone))
    print_line(f"{counted(len(gone), 'layer')} ({total}) {verb} in {cache}, {len(found) - len(gone)} kept", hang=2)
    if gone and not dry_run:
        say("the registry frees the space in its own garbage collection")
