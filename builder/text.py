"""Makes text of files, registries and images safe to print: replaces or escapes hidden characters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

HIDDEN = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff"
"""A regular expression's character class: C0 and C1 controls, which a terminal executes; bidirectional overrides, which
reorder text; and characters that neither XML nor UTF-8 can hold. Tab and line feed are not in it."""

_HIDDEN = re.compile(f"[{HIDDEN}]")


def printable(text: str) -> str:
    """The text with `?` for each hidden character; tabs and line feeds stay."""
    return _HIDDEN.sub("?", text)


def escaped(json_text: str) -> str:
    """Equal JSON text with `\\u....` for each hidden character."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)


def is_plain_line(text: str) -> bool:
    """Whether the text is one line without hidden characters or tabs."""
    return not _HIDDEN.search(text) and not set(text) & {"\t", "\n"}


def first_few(items: Sequence[str], most: int = 5) -> str:
    """The first items of a list, and how many more there are, for a message."""
    shown = ", ".join(items[:most])
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown


def relative_path(path: Path) -> str:
    """A path for messages: relative when it is below the working directory."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
