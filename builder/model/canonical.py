"""Canonical JSON, and the fingerprint of a value: the hash for layer keys and seals."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical(value: Any) -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def fingerprint(value: Any) -> str:
    """The hexadecimal SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()
