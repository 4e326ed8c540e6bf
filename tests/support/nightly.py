"""What is tested in full breadth at night only: the nightly job sets BUILDER_NIGHTLY."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

NIGHTLY = "BUILDER_NIGHTLY" in os.environ

nightly = pytest.mark.skipif(not NIGHTLY, reason="takes long: in the nightly job")


def nightly_but(cases: Iterable[Any], *always: Any) -> list[Any]:
    """Parameters of a test: all of them at night, otherwise `always` alone."""
    found = list(cases)
    assert set(always) <= set(found)
    return [case if case in always else pytest.param(case, marks=nightly) for case in found]
