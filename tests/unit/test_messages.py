"""Every error has a stable id, and tests/golden/messages.txt holds the texts.

After a change of words: `python -m tests.unit.test_messages` writes the file; read its diff as a user would.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache

from tests.support import errors
from tests.support.project import ROOT

SNAPSHOT = ROOT / "tests" / "golden" / "messages.txt"


@cache
def messages() -> list[errors.Message]:
    """Every error that builder/ raises."""
    return list(errors.messages())


def snapshot() -> str:
    """The texts of all errors, one line for each place that makes one."""
    return "".join(f"{item.id} ({item.kind}): {item.text!r}\n" for item in messages())


def test_every_error_has_an_id() -> None:
    unnamed = [
        f"{item.place}: {item.text}" for item in messages() if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", item.id)
    ]
    assert not unnamed, "\n".join(unnamed)


def test_an_id_belongs_to_one_class_of_error() -> None:
    kinds = defaultdict(set)
    for item in messages():
        kinds[item.id].add(item.kind)
    assert {id: sorted(found) for id, found in kinds.items() if len(found) > 1} == {}


def test_the_texts_equal_the_snapshot() -> None:
    assert SNAPSHOT.read_text("utf-8") == snapshot(), "run: python -m tests.unit.test_messages"


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot(), "utf-8")
