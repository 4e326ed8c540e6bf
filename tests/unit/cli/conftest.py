from __future__ import annotations

import os

import pytest

from tests.support.cli import Cli, CommandResult

__all__ = ["Cli", "CommandResult"]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
