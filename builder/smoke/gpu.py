"""The gpu tier, which needs a GB10."""

from __future__ import annotations

from collections.abc import Sequence

from builder.model.check import Check
from builder.smoke.report import Report, Result


def run_gpu(digest: str, checks: Sequence[Check]) -> Report:
    """Say of every gpu check that it was not run, and why: this version of builder has no runner for them."""
    reason = "this version of builder cannot run gpu checks yet"
    report = Report(digest)
    report.results = [
        Result(check.id, check.kind, "gpu", "not-run", reason, 0.0) for check in checks if check.tier == "gpu"
    ]
    return report
