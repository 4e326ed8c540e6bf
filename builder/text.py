"""What of a text may be shown: files, registries and images can hold any character."""

from __future__ import annotations

import re

HIDDEN = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff"
"""Characters of a class: controls (a terminal obeys them, of C1 as well), what turns text around in the eyes of a
reader, and what neither XML nor UTF-8 can hold. Tab and line feed are not among them."""

_HIDDEN = re.compile(f"[{HIDDEN}]")


def printable(text: str) -> str:
    """The text with `?` for each character that cannot be shown safely; tabs and line feeds stay."""
    return _HIDDEN.sub("?", text)


def escaped(json_text: str) -> str:
    """JSON text that says the same, with `\\u....` for each such character."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)


def is_plain_line(text: str) -> bool:
    """Whether the text is one line that a reader sees as it is."""
    return not _HIDDEN.search(text) and not set(text) & {"\t", "\n"}
