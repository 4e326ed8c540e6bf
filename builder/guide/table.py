"""Tables of Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def table(head: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> str:
    """A table; None is an empty cell."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join("" if c is None else str(c).replace("|", "\\|") for c in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
