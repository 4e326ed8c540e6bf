"""The keys in the files that options name."""

from __future__ import annotations

import os
from pathlib import Path

from builder.attest.keys import PublicKey, SigningKey, public_key, signing_key
from builder.errors import UsageError
from builder.regular import read_regular

_LIMIT = 1 << 16
"""Bytes of a file with a key."""


def read_signing_key(path: Path | None) -> SigningKey | None:
    """The private key in a file. Raises UsageError, InvalidError."""
    if path is None:
        return None
    return signing_key(_read(path), os.environ.get("BUILDER_KEY_PASSWORD") or None, str(path))


def read_public_keys(paths: list[Path] | None) -> list[PublicKey]:
    """The public keys in files. Raises UsageError, InvalidError."""
    return [public_key(_read(path), str(path)) for path in paths or ()]


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, _LIMIT, follow=True)
    except OSError as error:
        raise UsageError(
            f"the key cannot be read: {error.strerror}",
            id="key-unreadable",
            where=str(path),
            next="name a file; docs/statements.md says how to make a key",
        ) from None
