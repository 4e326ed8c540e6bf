"""Scanning a log: known bad lines with their meaning, and lines that look like warnings and are not expected."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from builder.knowledge.loglines import SERVER_WARNING, lines
from builder.pattern import compiled

_SHOWN = 5


@dataclass(frozen=True)
class LogFinding:
    """A line of a log. means: its known meaning, "" for an unknown warning."""

    line: str
    means: str = ""


def scan_log(
    log: str,
    warning: re.Pattern[str],
    expected: Callable[[str], bool],
    bad: Sequence[tuple[re.Pattern[str], str]] = (),
) -> list[LogFinding]:
    """The bad lines of a log and its unexpected warnings. Lines that differ only in numbers are one finding.

    warning: what a warning looks like. expected: whether a warning is harmless; called once for each different line.
    bad: patterns of bad lines and their meanings.
    """
    found: dict[str, LogFinding] = {}
    for line in dict.fromkeys(text.strip() for text in log.splitlines()):
        means = next((text for pattern, text in bad if pattern.search(line)), None)
        if means is None and (not warning.search(line) or expected(line)):
            continue
        found.setdefault(without_numbers(line), LogFinding(line[:500], means or ""))
    return list(found.values())


def scan_server_log(log: str, allow: Sequence[str] = ()) -> list[LogFinding]:
    """`scan_log` for vLLM's server, with the known lines of loglines.yaml. allow: patterns of more harmless lines."""
    good = [compiled(item.pattern) for item in lines() if item.good and item.pattern]
    good += [compiled(pattern) for pattern in allow]
    bad = [(compiled(item.pattern), item.means) for item in lines() if not item.good and item.pattern]
    return scan_log(log, SERVER_WARNING, lambda line: any(pattern.search(line) for pattern in good), bad)


def without_numbers(line: str) -> str:
    """A line with every number as 0: times and process ids differ each time that it is printed."""
    return re.sub(r"\d+", "0", line)


def describe(findings: Sequence[LogFinding]) -> str:
    """Findings as text, those with a known meaning first."""
    ordered = sorted(findings, key=lambda item: not item.means)
    texts = [item.line[:300] + (f" ({item.means})" if item.means else "") for item in ordered[:_SHOWN]]
    more = len(ordered) - len(texts)
    return "; ".join(texts) + (f"; and {more} more" if more else "")
