"""What a push says about an image."""

from __future__ import annotations

from builder.attest.statement import TESTED
from builder.cli.image.push import _tested
from builder.digest import Digest

IMAGE = Digest.of(b"")


def test_results_without_a_check_that_was_run_are_no_statement() -> None:
    """PASSED would be signed, and a policy that demands checks be met, although nothing was tested."""
    assert _tested(IMAGE, []) == {}
    assert _tested(IMAGE, [("gpu", "device", "not-run"), ("gpu", "driver", "not-run")]) == {}
    assert _tested(IMAGE, [("static", "a", "pass"), ("gpu", "b", "not-run")])[TESTED]["result"] == "PASSED"
