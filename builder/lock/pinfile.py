"""Sets the pin in a base's YAML file: comments, order and every other byte stay as they are. Text in, text out."""

from __future__ import annotations

import itertools
import json
from typing import Any

import yaml

from builder.errors import InvalidError
from builder.model.base import Base, Pin
from builder.model.yamlfile import build, parse_yaml

_KEYS = ("index", "manifest", "seal", "confidence", "evidence")
Edit = tuple[int, int, str]
"""Start and end in the text, and what comes there instead."""


def with_pin(text: str, pin: Pin, where: str) -> str:
    """The text of a base's file with the digests, seal, confidence and evidence (at least one line) of `pin`.

    Raises InvalidError when the file is not a valid base with a pin, or is written in a way that cannot be edited.
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
        "the pin cannot be set in this file",
        where=where,
        cause="it is not written as a plain mapping, or its values stand elsewhere in the file",
        next=f"set pin.manifest to {pin.manifest} and pin.index to {pin.index} by hand",
    )


class _NotEditableError(Exception):
    """The file is written in a way that this module does not understand."""


def _edits(text: str, pin: Pin) -> list[Edit]:
    # The Python loader: its marks count characters, as the text does.
    node = _child(yaml.compose(text, Loader=yaml.SafeLoader), "pin")
    if not isinstance(node, yaml.MappingNode):
        raise _NotEditableError
    known = {key.value: (key, value) for key, value in node.value}
    edits: list[Edit] = []
    if "image" not in known:
        raise _NotEditableError  # it is merged in from elsewhere
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


def _written(value: Any) -> str:
    """A value as flow YAML; JSON's quoting is YAML's too."""
    if value is None:
        return "null"
    return json.dumps(list(value), ensure_ascii=False) if isinstance(value, tuple) else str(value)


def _inserted(text: str, end: int, key: str, value: Any, column: int | None) -> Edit:
    """A new key after what ends at `end`: at the end of the line there, in flow style (no column) at once."""
    if column is None:
        return end, end, f", {key}: {_written(value)}"
    indent, newline = " " * column, _newline(text)
    line = text.find(newline, end)
    at = len(text) if line < 0 else line
    if not isinstance(value, tuple):
        return at, at, f"{newline}{indent}{key}: {_written(value)}"
    items = "".join(f"{newline}{indent}  - {json.dumps(item, ensure_ascii=False)}" for item in value)
    return at, at, f"{newline}{indent}{key}:{items}"


def _replaced(text: str, node: yaml.Node, value: Any) -> Edit:
    start, end = node.start_mark.index, node.end_mark.index
    written = _written(value)
    # Nothing stands after the colon yet, or a block that ends with its line.
    before = " " if start == end else ""
    after = _newline(text) if text[start:end].endswith("\n") else ""
    return start, end, before + written + after


def _items(text: str, node: yaml.SequenceNode, value: tuple[str, ...]) -> Edit:
    """All items of a block sequence become those of `value`; comments between them stay, below."""
    spans = [(item.start_mark.index, item.end_mark.index) for item in node.value]
    indent, newline = " " * node.start_mark.column, _newline(text)
    comments: list[str] = []
    for (_, end), (start, _) in itertools.pairwise(spans):
        gap = text[end:start].splitlines()
        comments += [f"{newline}{indent}{line.strip()}" for line in gap if line.strip().startswith("#")]
    written = f"{newline}{indent}- ".join(json.dumps(item, ensure_ascii=False) for item in value)
    return spans[0][0], spans[-1][1], written + "".join(comments)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _apply(text: str, edits: list[Edit]) -> str:
    made, position = "", 0
    for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
        made += text[position:start] + new
        position = end
    return made + text[position:]
