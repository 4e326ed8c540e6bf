"""The cpu checks `expected-log` and `log`: every warning that a check prints is declared, with a reason.

A layer, base or recipe declares expected warnings by a check of the kind `expected-log`:

    {id: log-no-driver, tier: cpu, kind: expected-log, args: {pattern: 0 active drivers, why: there is no GPU here}}

An undeclared warning is a warning of the report. It fails an image that has a check of the kind `log`:
`{id: log, tier: cpu, kind: log}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from builder.errors import InvalidError
from builder.knowledge.loglines import PROGRAM_WARNING
from builder.model.check import Check
from builder.pattern import compiled
from builder.smoke.check import bind_check, check_kind, check_result
from builder.smoke.logscan import scan_log, without_numbers
from builder.smoke.report import Result

DECLARES = "expected-log"
JUDGES = "log"

_SHOWN = 20


@check_kind("cpu", DECLARES)
def expected_log(check: Check, *, pattern: str, why: str) -> re.Pattern[str]:
    """Lines with this pattern are expected. why: the reason, 10 characters at least."""
    if len(why) < 10:
        raise InvalidError(
            f"check {check.id} ({DECLARES}): why: give a reason of 10 characters or more",
            id="check-reason-missing",
        )
    try:
        return compiled(pattern)
    except ValueError as error:
        raise InvalidError(f"check {check.id} ({DECLARES}): {error}", id="check-pattern-wrong") from None


@check_kind("cpu", JUDGES)
def log(check: Check) -> None:
    """Every line that looks like a warning is declared."""


def declarations(checks: Sequence[Check]) -> list[tuple[Check, re.Pattern[str]]]:
    """The `expected-log` checks with their patterns. Raises InvalidError for wrong arguments."""
    return [(check, bind_check(check)(check)) for check in checks if check.kind == DECLARES]


def judge_logs(checks: Sequence[Check], logs: Mapping[str, str]) -> list[Result]:
    """A result for each declaration, and one for the undeclared warnings. logs: the output of checks, by check id."""
    declared = declarations(checks)
    counts = dict.fromkeys((check.id for check, _ in declared), 0)

    def expected(line: str) -> bool:
        declaration = next((check.id for check, pattern in declared if pattern.search(line)), None)
        if declaration is not None:
            counts[declaration] += 1
        return declaration is not None

    undeclared: dict[str, str] = {}
    for name, text in logs.items():
        for finding in scan_log(text, PROGRAM_WARNING, expected):
            undeclared.setdefault(without_numbers(finding.line), f"{name}: {finding.line}")
    results = [check_result(check, "pass", f"{counts[check.id]} lines: {check.args['why']}") for check, _ in declared]
    judge = next((check for check in checks if check.kind == JUDGES), None)
    # Without a check of the kind `log`, its result has the kind as its id.
    named = Check(id=JUDGES, tier="cpu", kind=JUDGES)
    if not undeclared:
        message = f"{sum(counts.values())} lines look like warnings, all are declared"
        return [*results, check_result(named, "pass", message)]
    lines = list(undeclared.values())
    message = "\n".join([f"{len(lines)} lines look like warnings and are not declared:", *lines[:_SHOWN]])
    return [*results, check_result(named, "fail" if judge else "warn", message, details=lines)]
