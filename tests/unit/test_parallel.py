"""parallel.ahead: items that a thread makes before they are taken."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from builder.parallel import ahead


def test_items_made_ahead_come_in_order_and_an_error_in_its_place() -> None:
    def items() -> Iterator[int]:
        yield from range(50)
        raise ValueError("the end")

    taken = []
    assert list(ahead(iter(range(1000)))) == list(range(1000))
    with pytest.raises(ValueError, match="the end"):
        for item in ahead(items()):
            taken.append(item)
    assert taken[-50:] == list(range(50))


def test_items_that_nobody_takes_are_not_made() -> None:
    made: list[int] = []
    taken = ahead(made.append(number) or number for number in range(1000))
    assert next(taken) == 0
    begin = threading.active_count()
    taken.close()
    assert threading.active_count() == begin - 1
    assert len(made) < 10
