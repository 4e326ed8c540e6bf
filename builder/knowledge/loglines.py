"""Log lines: patterns of warnings, and known lines of vLLM's log with their meaning (loglines.yaml)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

PROGRAM_WARNING = re.compile(
    r"\b(?:WARN|WARNING|ERROR|CRITICAL|FATAL)\b|\b\w*Warning\b|\bwarning:|\b[Dd]eprecated\b|\b[Ee]rror:|Traceback"
)
"""A warning in the output of Python, a compiler or a logger."""

SERVER_WARNING = re.compile(r"\b(?:WARNING|ERROR|CRITICAL|FATAL)\b|Traceback \(most recent call last\)|\b\w*Warning: ")
"""A warning in the log of vLLM's server."""


@dataclass(frozen=True)
class LogLine:
    """A known line of a log. pattern: the regular expression that finds it; None when only people can recognise it."""

    line: str
    good: bool
    means: str
    pattern: str | None = None


@cache
def lines() -> tuple[LogLine, ...]:
    """All known lines."""
    return tuple(
        LogLine(**item) for item in yaml.safe_load(Path(__file__).with_name("loglines.yaml").read_text("utf-8"))
    )
