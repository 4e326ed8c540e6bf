"""A small reader of Dockerfiles, written from Docker's reference and not from what renders them here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Instruction:
    """One instruction: its upper-case name and the rest of its logical line."""

    name: str
    rest: str

    def words(self) -> list[str]:
        """The JSON form of ENTRYPOINT and CMD."""
        value = json.loads(self.rest)
        assert isinstance(value, list)
        assert all(isinstance(word, str) for word in value)
        return value

    def pair(self, values: Mapping[str, str]) -> tuple[str, str]:
        """NAME and value of an ENV or LABEL with one pair, variables taken from `values`."""
        name, _, raw = self.rest.partition("=")
        value, left = _value(raw, values)
        assert not left, f"more than one word: {left!r}"
        return name, value


def parse(text: str) -> list[Instruction]:
    """All instructions; comments and empty lines are skipped, also inside of a continued line."""
    found: list[Instruction] = []
    pending = ""
    for line in text.split("\n"):
        if re.match(r"[ \t]*#", line) or not line.strip(" \t\r"):
            continue
        continued = re.search(r"\\[ \t]*$", line)
        if continued:
            pending += line[: continued.start()]
            continue
        name, _, rest = (pending + line).strip(" \t\r").partition(" ")
        pending = ""
        assert name.upper() in KNOWN, f"not an instruction: {name!r}"
        found.append(Instruction(name.upper(), rest.strip(" \t")))
    assert not pending, "the last line is continued by nothing"
    return found


KNOWN = {"ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL"}
KNOWN |= {"ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}


def stages(instructions: list[Instruction]) -> dict[str, list[Instruction]]:
    """The instructions of every stage by its name, without its FROM."""
    found: dict[str, list[Instruction]] = {}
    for item in instructions:
        if item.name == "FROM":
            name = item.rest.rpartition(" AS ")[2]
            assert name not in found, f"two stages {name}"
            found[name] = []
        else:
            found[list(found)[-1]].append(item)
    return found


def _value(raw: str, values: Mapping[str, str], stop: str = "") -> tuple[str, str]:
    """One word with its quotes, escapes and variables resolved, and what is left behind it."""
    out, at, quote = "", 0, ""
    while at < len(raw):
        c = raw[at]
        if not quote and (c.isspace() or c == stop):
            break
        if c == "\\" and quote != "'" and at + 1 < len(raw) and (not quote or raw[at + 1] in '"$\\'):
            out, at = out + raw[at + 1], at + 2
        elif c in "\"'" and (not quote or quote == c):
            quote, at = ("" if quote else c), at + 1
        elif c == "$" and quote != "'":
            text, at = _variable(raw, at + 1, values)
            out += text
        else:
            out, at = out + c, at + 1
    assert not quote, f"a quote is not closed: {raw!r}"
    return out, raw[at:]


def _variable(raw: str, at: int, values: Mapping[str, str]) -> tuple[str, int]:
    found = re.compile(r"\{?(\w+)").match(raw, at)
    assert found, f"a $ without a name: {raw!r}"
    value, at = values.get(found[1], ""), found.end()
    if raw[found.start()] != "{":
        return value, at
    if raw[at] == "}":
        return value, at + 1
    assert raw[at : at + 2] == ":+", f"not a form that is used here: {raw!r}"
    other, left = _value(raw[at + 2 :], values, stop="}")
    assert left.startswith("}")
    return (other if value else ""), len(raw) - len(left) + 1
