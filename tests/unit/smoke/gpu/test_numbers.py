"""Numbers that the checks of a server read and expect."""

from __future__ import annotations

import pytest

from builder.project import Project
from builder.smoke.check import CheckFailed
from builder.smoke.gpu import server_checks
from builder.smoke.gpu.client import counters
from builder.smoke.gpu.small import small


def test_metrics_are_summed_over_labels() -> None:
    text = '# HELP a b\na{x="1"} 2\na{x="} 3"} 3.5 1700000000\nb 1e3\n'
    assert counters(text) == {"a": 5.5, "b": 1000.0}
    with pytest.raises(CheckFailed, match="no number"):
        counters("a x\n")


def test_a_rate_is_expected_from_the_source_or_twenty() -> None:
    recipe = Project().recipe("nemotron-omni")
    assert recipe.speed is not None
    assert server_checks.expected_rate(recipe) == float(recipe.speed.tokens_per_second) / 2
    assert server_checks.expected_rate(small(recipe)) == 20
