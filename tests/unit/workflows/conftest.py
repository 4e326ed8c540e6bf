from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.workflows.checkout import Checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)
