"""Lines of a log that look like warnings: what an image prints is expected, or it is looked into."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

LOOKS_LIKE = re.compile(
    r"\b(?:WARN|WARNING|ERROR|CRITICAL|FATAL)\b|\b\w*Warning\b|\bwarning:|\b[Dd]eprecated\b|\b[Ee]rror:|Traceback"
)
"""Levels as loggers print them, warnings as Python and compilers do."""


def suspicious_lines(text: str) -> list[str]:
    """The lines of a log that look like warnings, each once."""
    return list(dict.fromkeys(line.strip() for line in text.splitlines() if LOOKS_LIKE.search(line)))


def undeclared(logs: Mapping[str, str], expected: Sequence[Mapping[str, str]]) -> tuple[list[str], int]:
    """What no pattern covers, as "NAME: LINE" for each log; and how many lines one did.

    expected: declarations, each with the `pattern` that is found in such a line.
    """
    patterns = [re.compile(item["pattern"]) for item in expected]
    found: dict[str, str] = {}
    covered = 0
    for name, text in logs.items():
        for line in suspicious_lines(text):
            if any(pattern.search(line) for pattern in patterns):
                covered += 1
            else:
                # A line with times or numbers in it comes again and again.
                found.setdefault(re.sub(r"\d+", "0", line), f"{name}: {line}")
    return list(found.values()), covered
