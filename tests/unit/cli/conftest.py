from __future__ import annotations

import os

import pytest

from tests.support.cli import Cli, Said

__all__ = ["Cli", "Said"]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
