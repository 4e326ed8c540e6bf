"""Where the tests keep what they download: one content-addressed store of inputs for every suite on this machine."""

from __future__ import annotations

import os
from pathlib import Path

TESTS_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "builder-tests"
INPUTS = TESTS_CACHE / "inputs"
"""A store of `builder`; blobs are read and linked from it, each named by its sha256."""
