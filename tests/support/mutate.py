"""Hostile versions of real files: a seeded mutator of text and of the values in it."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import random
from collections.abc import Iterator
from typing import Any

import yaml

_TOKENS = (
    *("null", "~", "true", "no", "0x10", "1_000", "1e999", "-1", ".nan", ".inf", "1" * 5000, "0o17", "12:30:45"),
    *("2026-11-21", "&a [*a]", "*a", "<<: {a: 1}", "? [a]", "!!binary aGk=", "!!int ''", "!!python/object:os.system x"),
    *("!!set {a}", "!x y", "|\n", ">-\n", "{" * 300, "[" * 300, "- " * 300, "{{ 7 * 7 }}", "${HOME}", "$(id)", "`id`"),
    *("\x00", "\x1b[2J", "\x85", "\u2028", "\ufeff", "\ud7ff", "\U0001f600", "%s%n", "..", "../../etc/passwd", "/"),
    *("'", '"', "#", ": ", "- ", ",", "\t", "\r", "\n---\n", "\n...\n", "%YAML 9.9\n---\n", "NaN", "Infinity", "-0"),
    *("[]", "{}"),
)
_HASH = "a" * 64
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 1.5, 1e308, math.nan, math.inf, 2**31, 2**53 + 1, 2**63, 10**30, -(10**30)),
    *(10**4000, "", " ", "x", "1", "null", "0.20", "x" * 5000, "a\nb", "a\0b", "\x1b[31m", "\x7f", "ü", "\u202e", "-x"),
    *("--x", "..", "/etc/passwd", "a/../b", "$(id)", "{{ 1 }}", "linux/amd64", "amd64", "arm64/v8", "sha256:", _HASH),
    *(f"sha256:{_HASH.upper()}", f"sha256:{_HASH[1:]}", f"sha256:{_HASH}\n", f"SHA256:{_HASH}", f"sha512:{_HASH * 2}"),
    *("g" * 64, [], {}, [[]], [None], {"a": 1}, [1, 2], {"": ""}, ["x"] * 300),
)
_KEYS = ("no_such_key", "", "__class__", "model_config", "Name", "name ", "<<", "x-y", "1")


class Mutator:
    """Endless, reproducible variants of one text. kind: yaml or json."""

    def __init__(self, text: str, kind: str, seed: int | str) -> None:
        self.random = random.Random(seed)
        self.text = text
        self.kind = kind
        self.data = json.loads(text) if kind == "json" else yaml.safe_load(text)

    def some(self, count: int) -> Iterator[bytes]:
        """`count` variants: a third of them damaged text, the others valid files with other values."""
        for number in range(count):
            yield self.damaged() if number % 3 == 0 else self.changed()

    def damaged(self) -> bytes:
        """One to three small damages to the bytes."""
        data = bytearray(self.text.encode("utf-8"))
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            data = self._damage(data)
        return bytes(data)

    def _damage(self, data: bytearray) -> bytearray:
        pick = self.random
        at = pick.randrange(len(data) + 1)
        how = pick.randrange(8)
        if how == 0 and data:
            data[at % len(data)] ^= 1 << pick.randrange(8)
        elif how == 1:
            del data[at : at + pick.choice((1, 1, 4, 40))]
        elif how == 2:
            data[at:at] = pick.choice(_TOKENS).encode("utf-8", "surrogatepass")
        elif how == 3:
            del data[at:]
        elif how == 4:
            data[at:at] = pick.randbytes(pick.choice((1, 3)))
        else:
            lines = data.split(b"\n")
            one, other = pick.randrange(len(lines)), pick.randrange(len(lines))
            if how == 5:
                lines.insert(other, lines[one])
            elif how == 6:
                lines[one], lines[other] = lines[other], lines[one]
            else:
                lines[one] = b" " * pick.randrange(6) + lines[one].lstrip()
            data = bytearray(b"\n".join(lines))
        return data

    def changed(self) -> bytes:
        """The same file with one to three values, keys or types changed."""
        data = copy.deepcopy(self.data)
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            data = self._change(data)
        if self.kind == "yaml" and self.random.random() < 0.5:
            # What is nested too deeply for the writer is written as JSON, which is YAML too.
            with contextlib.suppress(RecursionError):
                return yaml.safe_dump(data, sort_keys=False, allow_unicode=True).encode("utf-8", "surrogatepass")
        style = {"ensure_ascii": self.random.random() < 0.5, "indent": self.random.choice((None, 1))}
        try:
            text = json.dumps(data, **style)
        except RecursionError:
            return self.changed()  # Three of the deepest changes in one place: no writer takes that.
        if self.random.random() < 0.1:
            text = self._twice(text)
        return text.encode("utf-8", "surrogatepass")

    def _twice(self, text: str) -> str:
        """A duplicate key in an object, with another value."""
        at = [place for place, letter in enumerate(text[:-1]) if letter == "{" and text[place + 1] != "}"]
        if not at:
            return text
        place = self.random.choice(at)
        rest = text[place + 1 :].lstrip()
        key = rest[: rest.find(":")]
        return f"{text[: place + 1]}{key}: {json.dumps(self.random.choice(('x', 0, None)))}, {rest}" if key else text

    def _change(self, data: Any) -> Any:
        places = list(_places(data))
        if not places:
            return self._value()
        parent, key = self.random.choice(places)
        how = self.random.randrange(7)
        if how == 0:
            del parent[key]
        elif how == 1 and isinstance(parent, dict):
            parent[self.random.choice(_KEYS)] = self._value()
        elif how == 2 and isinstance(parent, dict):
            parent[f"{key}{self.random.choice(('x', '_', ' ', 's'))}"] = parent.pop(key)
        elif how == 3:
            parent[key] = self._near(parent[key])
        elif how == 4:
            parent[key] = {"a": parent[key]} if self.random.random() < 0.5 else [parent[key]]
        elif how == 5:
            deep = parent[key]
            for _ in range(self.random.choice((2, 60, 400))):
                deep = [deep]
            parent[key] = deep
        else:
            parent[key] = self._value()
        return data

    def _value(self) -> Any:
        """A value of its own: later changes go into it."""
        return copy.deepcopy(self.random.choice(_VALUES))

    def _near(self, value: Any) -> Any:
        """Something that looks like the value."""
        pick = self.random
        if isinstance(value, bool):
            return pick.choice((int(value), str(value).lower(), "yes", not value))
        if isinstance(value, int | float):
            fraction = max(min(value, 2**53), -1) * 1.0
            return pick.choice((str(value), fraction, value + 1, -value, bool(value), f" {value}", value * 1000))
        if isinstance(value, str) and value:
            at = pick.randrange(len(value))
            letter = pick.choice("0aZ/:.-_ \n\t~@é")
            swapped = value[:at] + letter + value[at + 1 :]
            return pick.choice((swapped, value + "\n", value.upper(), value[:at], f"{value} ", [value], value + letter))
        if isinstance(value, list) and value:
            return pick.choice((value[::-1], value + value[:1], value[:-1], value[0], dict.fromkeys(map(str, value))))
        return self._value()


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with every key or index in it."""
    keys = list(data) if isinstance(data, dict) else list(range(len(data))) if isinstance(data, list) else []
    for key in keys:
        yield data, key
        yield from _places(data[key])
