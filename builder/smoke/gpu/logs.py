"""Reading a server's log: lines that are known to be bad, and warnings that nobody declared harmless."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from builder.knowledge.loglines import lines

_ALARM = re.compile(r"\b(?:WARNING|ERROR|CRITICAL|FATAL)\b|Traceback \(most recent call last\)|\b\w*Warning: ")
_SHOWN = 5


@dataclass(frozen=True)
class Finding:
    """A line of a log. means: what is known of it, "" for a warning that is not known."""

    line: str
    means: str = ""


def scan(log: str, allow: Sequence[str] = ()) -> list[Finding]:
    """What is wrong, each kind of line once. allow: patterns of further harmless lines."""
    good = [re.compile(item.pattern) for item in lines() if item.good and item.pattern]
    good += [re.compile(pattern) for pattern in allow]
    bad = [(re.compile(item.pattern), item.means) for item in lines() if not item.good and item.pattern]
    found: dict[str, Finding] = {}
    for line in log.splitlines():
        means = next((text for pattern, text in bad if pattern.search(line)), None)
        if means is None and (not _ALARM.search(line) or any(pattern.search(line) for pattern in good)):
            continue
        # The same line of several processes or moments is one finding.
        found.setdefault(re.sub(r"\d+", "0", line), Finding(line.strip()[:300], means or ""))
    return list(found.values())


def describe(findings: Sequence[Finding]) -> str:
    """Findings as a text: the known ones first."""
    known = sorted(findings, key=lambda item: not item.means)
    texts = [f"{item.line}" + (f" ({item.means})" if item.means else "") for item in known[:_SHOWN]]
    more = len(known) - len(texts)
    return "; ".join(texts) + (f"; and {more} more" if more else "")
