from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.http_registry import Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as one:
        yield one


@pytest.fixture
def other() -> Iterator[Server]:
    with serving() as one:
        yield one
