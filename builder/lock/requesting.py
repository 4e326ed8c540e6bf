"""Adds a request to the text of a requests.yaml, and keeps the rest of the text as it is."""

from __future__ import annotations

import json

import yaml

from builder.errors import UsageError
from builder.lock.freshness import REQUESTS
from builder.model.lock import DebRequest, WheelRequest
from builder.model.yamlfile import compose, parse_yaml


def with_request(text: str, name: str, request: DebRequest | WheelRequest, comment: str = "") -> str:
    """The text with this request under `debs` or `wheels`, in place of the one of that name that an earlier call wrote.

    comment: a line above it.

    Raises UsageError when the mapping is not written as a block, InvalidError for text that is not YAML.
    """
    kind = "debs" if isinstance(request, DebRequest) else "wheels"
    # Composing alone recurses, in libyaml until the stack overflows.
    root = compose(text) if parse_yaml(text, REQUESTS) is not None else None
    if root is None:
        return f"{text}{kind}:\n{_entry(name, request, 2, comment)}"
    if not isinstance(root, yaml.MappingNode):
        raise _by_hand(kind, name)
    section = next((value for key, value in root.value if key.value == kind), None)
    lines = text.splitlines(keepends=True)
    if section is None:
        return f"{text.rstrip()}\n{kind}:\n{_entry(name, request, 2, comment)}"
    if not isinstance(section, yaml.MappingNode) or section.flow_style or not section.value:
        raise _by_hand(kind, name)
    first = section.value[0][0].start_mark
    begin = end = first.line
    for key, value in section.value:
        if key.value == name:
            begin, end = key.start_mark.line, value.end_mark.line
    return "".join([*lines[:begin], _entry(name, request, first.column, comment), *lines[end:]])


def _entry(name: str, request: DebRequest | WheelRequest, column: int, comment: str) -> str:
    """The entry; strings as in JSON, which YAML contains."""
    data = request.model_dump(mode="json", exclude_defaults=True)
    lines = [f"{name}:", *(f"  {key}: {json.dumps(value)}" for key, value in data.items())]
    return "".join(f"{' ' * column}{line}\n" for line in ([f"# {comment}", *lines] if comment else lines))


def _by_hand(kind: str, name: str) -> UsageError:
    return UsageError(
        f"{REQUESTS} has no block under `{kind}`",
        id="requests-not-a-block",
        next=f"write the request {name} by hand; docs/locks.md shows one",
    )
