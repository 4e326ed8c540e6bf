"""Folders for the tests' downloads, kept between runs, and links to inputs in the user's own store."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from builder.store.store import default_root

TESTS_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "builder-tests"
INPUTS = TESTS_CACHE / "inputs"
"""A store of `builder`: blobs are read and hard-linked from it, each named by its sha256."""
SDISTS = TESTS_CACHE / "sdists"
"""Source distributions of vLLM, checked by hash whenever one is read."""


def seed_inputs(digests: Iterable[str]) -> None:
    """Link blobs from the user's own store, where `scripts/quickstart` has put them, instead of downloading them."""
    blobs = INPUTS / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    for digest in digests:
        name = digest.removeprefix("sha256:")
        own = default_root() / "blobs" / "sha256" / name
        if own.is_file() and not (blobs / name).exists():
            try:
                (blobs / name).hardlink_to(own)
            except OSError:
                return  # another file system: copying costs as much as downloading
