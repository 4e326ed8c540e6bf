"""Fixtures: a registry, a bench that mirrors and builds, and a function that damages a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.engine import FakeEngine
from tests.support.http_registry import Server
from tests.support.mirror import Mirror
from tests.support.mirror_bench import Bench


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture
def bench(tmp_path: Path, engine: FakeEngine, mirror: Mirror) -> Bench:
    return Bench(tmp_path, engine, mirror)


@pytest.fixture
def spoil() -> Callable[[Path], None]:
    """Changes one byte of a file, and nothing else of it."""

    def change(path: Path) -> None:
        data = path.read_bytes()
        path.unlink()  # another name of the same file stays as it was
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))

    return change
