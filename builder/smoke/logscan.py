"""Lines of a log that look like warnings: what an image prints is declared, with a reason, or it is looked into.

A declaration is a check of the kind `expected-log` of a layer, base or recipe, and is inherited as checks are:

    {id: log-no-driver, tier: cpu, kind: expected-log, args: {pattern: 0 active drivers, why: there is no GPU here}}

What is not declared is a warning of the report; it fails an image whose base, layer or recipe has a check of the kind
`log`: `{id: log, tier: cpu, kind: log}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from builder.errors import InvalidError
from builder.model.check import Check
from builder.smoke.check import bind_check, check_kind
from builder.smoke.report import Result

DECLARES = "expected-log"
JUDGES = "log"

LOOKS_LIKE = re.compile(
    r"\b(?:WARN|WARNING|ERROR|CRITICAL|FATAL)\b|\b\w*Warning\b|\bwarning:|\b[Dd]eprecated\b|\b[Ee]rror:|Traceback"
)
"""Levels as loggers print them, warnings as Python and compilers do."""

_SHOWN = 20


@check_kind("cpu", DECLARES)
def expected_log(check: Check, *, pattern: str, why: str) -> re.Pattern[str]:
    """Lines with this pattern are expected. why: the reason, 10 characters at least."""
    if len(why) < 10:
        raise InvalidError(
            f"check {check.id} ({DECLARES}): why: say in 10 characters or more why the lines are expected",
            id="check-reason-missing",
        )
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidError(
            f"check {check.id} ({DECLARES}): pattern: not a regular expression: {error}", id="check-pattern-wrong"
        ) from None


@check_kind("cpu", JUDGES)
def log(check: Check) -> None:
    """Every line that looks like a warning is declared."""


def declarations(checks: Sequence[Check]) -> list[tuple[Check, re.Pattern[str]]]:
    """The declarations among some checks. Raises InvalidError for one without a pattern or a reason."""
    found = []
    for check in checks:
        if check.kind != DECLARES:
            continue
        found.append((check, bind_check(check)(check)))
    return found


def judge_logs(checks: Sequence[Check], logs: Mapping[str, str], tier: str) -> list[Result]:
    """What became of each declaration, and whether every line that looks like a warning was declared.

    logs: what was printed, by the name of the check that printed it.
    """
    declared = declarations(checks)
    counts = dict.fromkeys((check.id for check, _ in declared), 0)
    rest: dict[str, str] = {}
    for name, text in logs.items():
        for line in suspicious_lines(text):
            fitting = [check.id for check, pattern in declared if pattern.search(line)]
            for each in fitting[:1]:
                counts[each] += 1
            if not fitting:
                # A line with times or numbers in it comes again and again.
                rest.setdefault(re.sub(r"\d+", "0", line), f"{name}: {line}")
    results = [
        Result(check.id, DECLARES, tier, "pass", f"{counts[check.id]} lines: {check.args['why']}")
        for check, _ in declared
    ]
    if not rest:
        message = f"{sum(counts.values())} lines look like warnings, all declared"
        return [*results, Result(JUDGES, JUDGES, tier, "pass", message)]
    lines = [line[:500] for line in rest.values()]
    message = "\n".join([f"{len(lines)} lines look like warnings and are not declared:", *lines[:_SHOWN]])
    strict = any(check.kind == JUDGES for check in checks)
    return [*results, Result(JUDGES, JUDGES, tier, "fail" if strict else "warn", message, details=lines)]


def suspicious_lines(text: str) -> list[str]:
    """The lines of a log that look like warnings, each once."""
    return list(dict.fromkeys(line.strip() for line in text.splitlines() if LOOKS_LIKE.search(line)))
