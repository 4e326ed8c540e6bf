"""The number of generated examples: BUILDER_FUZZ multiplies every number of examples (default 0.3, nightly more).

BUILDER_FUZZ_SEED chooses other examples of the mutator; hypothesis has a seed of its own.
"""

from __future__ import annotations

import os

TIMES = float(os.environ.get("BUILDER_FUZZ", "0.3"))
SEED = os.environ.get("BUILDER_FUZZ_SEED", "1")


def times(count: int) -> int:
    """A number of examples, multiplied; at least one."""
    return max(1, round(count * TIMES))
