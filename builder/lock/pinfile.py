"""Edits the pin in the text of a base's YAML file; comments, order and every other byte stay the same."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import yaml

from builder.errors import InvalidError
from builder.model.base import Base, Pin
from builder.model.yamlfile import build, parse_yaml

_KEYS = ("index", "manifest", "seal", "confidence", "evidence")
Edit = tuple[int, int, str]
"""Start and end in the text, and the replacement."""


def with_pin(text: str, pin: Pin, where: str) -> str:
    """The text of a base's file with the digests, seal, confidence and evidence (at least one line) of `pin`.

    Raises InvalidError when the file is not a valid base with a pin, or its YAML style cannot be edited.
    """
    before = build(parse_yaml(text, where), Base, where=where, text=text)
    wanted = before.model_copy(update={"pin": pin})
    try:
        after = _apply(text, _edits(text, pin))
        if build(parse_yaml(after, where), Base, where=where, text=after) == wanted:
            return after
    except (InvalidError, _NotEditableError):
        pass
    raise InvalidError(
        "the pin in this file cannot be edited",
        id="pin-not-editable",
        where=where,
        cause="it is not a plain mapping, or its values are in another place of the file",
        next=f"set pin.manifest to {pin.manifest} and pin.index to {pin.index} by hand",
    )


class _NotEditableError(Exception):
    """This module cannot edit the YAML style of the file."""


def _edits(text: str, pin: Pin) -> list[Edit]:
    # The Python loader, not the C loader: its marks count characters, as indexes into the text do.
    node = _child(yaml.compose(text, Loader=yaml.SafeLoader), "pin")
    if not isinstance(node, yaml.MappingNode):
        raise _NotEditableError
    known = {key.value: (key, value) for key, value in node.value}
    edits: list[Edit] = []
    if "image" not in known:
        raise _NotEditableError  # a merge key (<<) provides it
    image = known["image"][1]
    end, column = image.end_mark.index, known["image"][0].start_mark.column
    for key in _KEYS:
        value = getattr(pin, key)
        if key not in known:
            if value:
                edits.append(_inserted(text, end, key, value, None if node.flow_style else column))
            continue
        old = known[key][1]
        if not node.start_mark.index <= old.start_mark.index <= old.end_mark.index <= node.end_mark.index:
            raise _NotEditableError  # an alias
        if isinstance(old, yaml.SequenceNode) and not old.flow_style and value:
            edits.append(_items(text, old, value))
            end = old.value[-1].end_mark.index
        else:
            edits.append(_replaced(text, old, value))
            end = old.end_mark.index
    return edits


def _child(node: Any, name: str) -> Any:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for key, value in pairs if key.value == name), None)


def _flow(value: Any) -> str:
    """A value as YAML in flow style; JSON strings are valid YAML."""
    if value is None:
        return "null"
    return f"[{', '.join(map(_quoted, value))}]" if isinstance(value, tuple) else str(value)


def _quoted(text: str) -> str:
    """A JSON string that is YAML too: a reader of YAML drops a byte order mark and folds the line separators."""
    quoted = json.dumps(text, ensure_ascii=False)
    return re.sub("[\ufeff\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _inserted(text: str, end: int, key: str, value: Any, column: int | None) -> Edit:
    """A new key after the value that ends at `end`: on a new line, or after a comma in a flow mapping (no column)."""
    if column is None:
        return end, end, f", {key}: {_flow(value)}"
    indent, newline = " " * column, _newline(text)
    line = text.find(newline, end)
    at = len(text) if line < 0 else line
    if not isinstance(value, tuple):
        return at, at, f"{newline}{indent}{key}: {_flow(value)}"
    items = "".join(f"{newline}{indent}  - {_quoted(item)}" for item in value)
    return at, at, f"{newline}{indent}{key}:{items}"


def _replaced(text: str, node: yaml.Node, value: Any) -> Edit:
    start, end = node.start_mark.index, node.end_mark.index
    written = _flow(value)
    # An empty value needs a space after the colon; a block value ends with its line end.
    before = " " if start == end else ""
    after = _newline(text) if text[start:end].endswith("\n") else ""
    return start, end, before + written + after


def _items(text: str, node: yaml.SequenceNode, value: tuple[str, ...]) -> Edit:
    """Replace all items of a block sequence by those of `value`; comments between them move below."""
    spans = [(item.start_mark.index, item.end_mark.index) for item in node.value]
    indent, newline = " " * node.start_mark.column, _newline(text)
    comments: list[str] = []
    for (_, end), (start, _) in itertools.pairwise(spans):
        gap = text[end:start].splitlines()
        comments += [f"{newline}{indent}{line.strip()}" for line in gap if line.strip().startswith("#")]
    written = f"{newline}{indent}- ".join(_quoted(item) for item in value)
    return spans[0][0], spans[-1][1], written + "".join(comments)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _apply(text: str, edits: list[Edit]) -> str:
    result, position = "", 0
    for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
        result += text[position:start] + new
        position = end
    return result + text[position:]
