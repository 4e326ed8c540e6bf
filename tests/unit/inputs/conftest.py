"""Fixtures: a scripted HTTP server, and an empty store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.store.store import Store
from tests.support.http_server import Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture
def other() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")
