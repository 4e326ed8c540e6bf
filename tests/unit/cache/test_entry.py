"""What a stranger says of a layer key: within bounds, and no line of its own in a message."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from builder.attest.envelope import sign
from builder.attest.keys import signing_key
from builder.attest.statement import LAYER, read_statement, write_statement
from builder.cache.entry import STATEMENT, key_manifest, predicate
from builder.cache.verdict import sort_out
from builder.digest import Digest
from builder.oci.format import MEDIA_TYPES
from builder.registry.signed import Ignored
from builder.store.records import LayerRecord
from tests.support.statements import new_key

KEY = "1" * 64
ABOUT = Digest.of(key_manifest(KEY))
BLOB = Digest.of(b"blob")
LAYER_HERE = LayerRecord(Digest.of(b"here"), 1, BLOB, 1, MEDIA_TYPES["zstd"], 1, BLOB, BLOB)
LAYER_THERE = LayerRecord(Digest.of(b"there"), 1, BLOB, 1, MEDIA_TYPES["zstd"], 1, BLOB, BLOB)


def said(finished: str) -> bytes:
    machine = {"builder": "1.0", "architecture": "aarch64"}
    about = predicate(KEY, "x" * 60, LAYER_THERE, (1 << 28, 1 << 28), machine=machine, finished=finished)
    return write_statement(ABOUT, LAYER, about, LAYER_THERE.digest)


def test_a_time_makes_no_line_of_a_message() -> None:
    statement = read_statement(said("\nsigned by team.pub:"), "here")
    found = sort_out(KEY, [Ignored(ABOUT, "unknown", statement)], None, datetime.now(UTC), "here")
    assert "team.pub" in found.compare(LAYER_HERE, "here")
    assert "\n" not in found.compare(LAYER_HERE, "here")


def test_a_statement_is_far_below_its_limit(tmp_path: Path) -> None:
    """A hundred statements of each layer are kept, and take thirty times their size."""
    key = signing_key(new_key(tmp_path, "own")[0].read_bytes(), None, "own")
    assert len(sign(said("2026-01-01T00:00:00Z"), key)) * 2 < STATEMENT <= 1 << 13
