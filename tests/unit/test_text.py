"""Text of strangers that is printed, or written into JSON."""

from __future__ import annotations

import pytest

from builder.text import escaped, is_plain_line, printable

HIDDEN = "\x00\x1b\r\x7f\x9b\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\ud800\uffff"


@pytest.mark.parametrize("character", HIDDEN, ids=ascii)
def test_a_hidden_character_is_shown(character: str) -> None:
    assert printable(f"a{character}b") == "a?b"
    assert escaped(f"a{character}b") == f"a\\u{ord(character):04x}b"
    assert not is_plain_line(f"a{character}b")


def test_text_stays() -> None:
    text = "Größe → 日本語 \u200d 👍"
    assert printable(text) == escaped(text) == text and is_plain_line(text)
    assert printable("a\tb\n") == "a\tb\n"
