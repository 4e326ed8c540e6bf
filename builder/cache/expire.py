"""Old entries of a layer cache: found by the newest statement about a layer key, and deleted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from builder.attest.envelope import MEDIA_TYPE
from builder.cache.entry import LAYER_TYPE, STATEMENT, Entry, key_manifest, read_entry
from builder.digest import Digest
from builder.model.reference import Reference
from builder.parallel import every
from builder.registry.client import Registry
from builder.registry.referrers import attached, document_of
from builder.registry.signed import signed_statements

_AT_ONCE = 8


@dataclass(frozen=True)
class Kept:
    """What a cache has of a layer key. name: of the layer; empty without a readable statement. size: of its blobs.

    built: when it was built last, as anybody says; None without a readable statement. manifests: of the statements, the
    layers and the key, in the order in which they are to be deleted.
    """

    key: str
    name: str
    size: int
    built: datetime | None
    manifests: tuple[Digest, ...]


def survey(client: Registry, place: Reference) -> list[Kept]:
    """All entries of a cache, the oldest first. Raises NetworkError."""
    keys = [tag for tag in client.tags(place) if re.fullmatch(r"[0-9a-f]{64}", tag)]
    found = every(lambda key: _entry(client, place, key), keys, _AT_ONCE)
    return sorted(found, key=lambda kept: (_time(kept), kept.key))


def older(kept: Sequence[Kept], seconds: float, now: datetime) -> list[Kept]:
    """The entries that were built before the last so many seconds. An entry that nobody vouches for counts as old."""
    return [item for item in kept if (now - _time(item)).total_seconds() >= seconds]


def delete(client: Registry, place: Reference, kept: Sequence[Kept]) -> None:
    """Delete entries. A build that reads one meanwhile makes the layer itself. Raises NetworkError.

    The list of what is attached to a key may be anybody's who can push: only what names the key itself is deleted.
    """
    for item in kept:
        *beside, about = item.manifests
        for digest in beside:
            if _subject(client, place, digest) == about:
                client.delete(place, digest)
        client.delete(place, about)


def _subject(client: Registry, place: Reference, digest: Digest) -> object:
    """The digest of what a manifest is about; None when it is about nothing, or cannot be read."""
    found = document_of(client, Reference(place.registry, place.repository, digest=digest)).get("subject")
    return found.get("digest") if isinstance(found, dict) else None


def _time(kept: Kept) -> datetime:
    return kept.built or datetime.fromtimestamp(0, UTC)


def _entry(client: Registry, place: Reference, key: str) -> Kept:
    about = Digest.of(key_manifest(key))
    entries: list[Entry] = []
    for said in signed_statements(client, place, about, (), STATEMENT, strangers=True):
        if said.statement is not None:
            try:
                entries.append(read_entry(said.statement, key, "", said.artifact))
            except ValueError:
                continue
    sizes = {entry.layer.digest: entry.layer.size + entry.listing_size + entry.receipt_size for entry in entries}
    names = [str(entry.statement.predicate.get("name", "")) for entry in entries]
    kinds = (MEDIA_TYPE, LAYER_TYPE)
    beside = [Digest(item["digest"]) for kind in kinds for item in attached(client, place, about, kind)]
    built = max((time for entry in entries if (time := _finished(entry)) is not None), default=None)
    return Kept(key, names[0] if names else "", sum(sizes.values()), built, (*beside, about))


def _finished(entry: Entry) -> datetime | None:
    try:
        return datetime.fromisoformat(str(entry.statement.predicate.get("finishedOn"))).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
