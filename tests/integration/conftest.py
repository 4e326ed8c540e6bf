from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.registry import running
from tests.support.sandboxed import here

__all__ = ["here"]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of an empty registry."""
    with running(tmp_path_factory.mktemp("registry")) as started:
        yield started
