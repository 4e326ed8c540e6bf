"""Adds requests to the text of requests.yaml; comments, order and every other byte stay the same."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from builder.errors import InvalidError
from builder.model.lock import LockRequests, WheelRequest
from builder.model.yamlfile import build, parse_yaml

HEADER = "# The requests that `builder lock` resolves: one entry for each section file NAME.json beside this file.\n"


def with_requests(text: str, added: Mapping[str, tuple[str, WheelRequest]], where: str) -> str:
    """The text of requests.yaml with more requests for wheels, each below a comment. text: empty for a new file.

    Raises InvalidError when the file is not valid, or its YAML style cannot be edited.
    """
    entries = "".join(_entry(name, comment, request) for name, (comment, request) in added.items())
    before = _parsed(text, where) if text.strip() else LockRequests()
    wanted = before.model_copy(
        update={"wheels": {**before.wheels, **{name: request for name, (_, request) in added.items()}}}
    )
    try:
        after = _inserted(text, entries)
        if _parsed(after, where) == wanted:
            return after
    except (InvalidError, yaml.YAMLError):
        pass
    raise InvalidError(
        "no request can be added to this file",
        id="requests-not-editable",
        where=where,
        cause="`wheels` is not a plain mapping with one key per line",
        next="add this below wheels:\n" + entries,
    )


def _parsed(text: str, where: str) -> LockRequests:
    data = parse_yaml(text, where)
    plain = {key: value for key, value in data.items() if not key.startswith("x-")} if isinstance(data, dict) else data
    return build(plain, LockRequests, where=where, text=text)


def _inserted(text: str, entries: str) -> str:
    # The Python loader, not the C loader: its marks count characters, as indexes into the text do.
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    pairs = root.value if isinstance(root, yaml.MappingNode) else ()
    node = next((value for key, value in pairs if key.value == "wheels"), None)
    if node is None:
        start = text or HEADER
        return f"{start.rstrip(chr(10))}\n\nwheels:\n{entries}"
    if not node.value:  # {} or nothing
        start, end = node.start_mark.index, node.end_mark.index
        return f"{text[:start].rstrip()}\n{entries}{text[end:].lstrip(chr(10))}"
    end = text.find("\n", _end(node)) + 1 or len(text)
    return text[:end] + ("" if text[:end].endswith("\n") else "\n") + entries + text[end:]


def _end(node: Any) -> int:
    """Where the last value in a node ends; the end of a block mapping is only where the next key begins."""
    while isinstance(node, yaml.MappingNode | yaml.SequenceNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return int(node.end_mark.index)


def _entry(name: str, comment: str, request: WheelRequest) -> str:
    lines = [f"  # {comment}", f"  {name}:"]
    for key, value in request.model_dump(mode="json", exclude_defaults=True).items():
        if isinstance(value, list) and len(value) > 1:
            lines += [f"    {key}:", *(f"      - {_flow(item)}" for item in value)]
        else:
            lines.append(f"    {key}: {_flow(value)}")
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    """A value as YAML on one line; JSON is valid YAML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    is_plain = isinstance(value, str) and re.fullmatch(r"[a-z][a-z0-9_-]*(==[0-9.*a-z]+)?", value)
    return str(value) if is_plain else json.dumps(value)
