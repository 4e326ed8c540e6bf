"""Makes text of files, registries and images safe to print, and gives status words a color."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

HIDDEN = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff"
"""A regular expression's character class: C0 and C1 controls, which a terminal executes; bidirectional marks and
overrides, which reorder text; line and paragraph separators, which some programs take for the end of a line; and
characters that neither XML nor UTF-8 can hold. Tab and line feed are not in it."""

_HIDDEN = re.compile(f"[{HIDDEN}]")
_GREEN, _YELLOW, _RED = 32, 33, 31
_COLORS = {
    **dict.fromkeys(("ok", "identical"), _GREEN),
    **dict.fromkeys(("warning", "unknown", "content identical", "not compared"), _YELLOW),
    **dict.fromkeys(("builder", "error", "failed", "differs"), _RED),
}
"""The parameter of the terminal's sequence SGR (ECMA-48) for each status word."""


def printable(text: str) -> str:
    """The text with `?` for each hidden character; tabs and line feeds stay."""
    return _HIDDEN.sub("?", text)


def escaped(json_text: str) -> str:
    """Equal JSON text with `\\u....` for each hidden character."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)


def one_line(text: str) -> str:
    """The text with `\\n` for each line feed: what a stranger wrote makes no line of its own."""
    return text.replace("\n", "\\n")


def is_plain_line(text: str) -> bool:
    """Whether the text is one line without hidden characters or tabs."""
    return not _HIDDEN.search(text) and not set(text) & {"\t", "\n"}


def first_few(items: Sequence[str], most: int = 5, count: int | None = None) -> str:
    """The first items of a list, and how many more there are, for a message. count: of all, if items are the first."""
    more = (len(items) if count is None else count) - most
    shown = ", ".join(items[:most])
    return f"{shown} and {more} more" if more > 0 else shown


def relative_path(path: Path) -> str:
    """A path for messages: relative when it is below the working directory."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def has_color(stream: TextIO) -> bool:
    """Whether status words on a stream have a color: on a terminal, unless NO_COLOR is set; always with FORCE_COLOR.

    The variables are those of no-color.org and force-color.org; an empty one counts as not set.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def with_status(text: str, word: str, stream: TextIO) -> str:
    """Printable text, with the first occurrence of its status word in color where the stream has colors."""
    text = printable(text)
    if not has_color(stream) or word not in _COLORS:
        return text
    return text.replace(word, f"\x1b[{_COLORS[word]}m{word}\x1b[0m", 1)


def closest(name: str, names: Iterable[str]) -> str:
    """The likely cause of an unknown name: similar ones of `names`; empty when none is similar."""
    close = [*map(one_line, difflib.get_close_matches(name, dict.fromkeys(names), n=3, cutoff=0.5))]
    return f"did you mean {' or '.join(close)}?" if close else ""
