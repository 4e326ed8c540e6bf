"""stack.text: the file of a new base is read as it was meant, whatever wheels call their files."""

from __future__ import annotations

import pytest

from builder.model.yamlfile import parse_yaml
from builder.stack.contents import Overlap
from builder.stack.text import base_text

NAMES = [
    "null",
    "on",
    "1.5",
    "a/b.py",
    "a: b",
    "#",
    "two\u2028lines",
    "\x85",
    "\ufeff",
    "é\n",
    "\U0001f600",
    "~",
]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_file(name: str) -> None:
    found = Overlap({name: ("torch", "null")}, {"on": name}, ())
    text = base_text("new", "section", found, deep_gemm=False, notes=[name])
    read = parse_yaml(text, "")
    assert read["stack"]["shared"] == {name: ["torch", "null"]}
    assert read["stack"]["leave_out"] == {"on": name}
    assert read["notes"] == [f"Not known: {name}"]
