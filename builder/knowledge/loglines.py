"""Log lines: what a warning looks like, and lines of vLLM's log with their meaning (loglines.yaml)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

PROGRAM_WARNING = re.compile(
    r"\b(?:WARN|WARNING|ERROR|CRITICAL|FATAL)\b|\b\w*Warning\b|\bwarning:|\b[Dd]eprecated\b|\b[Ee]rror:|Traceback"
)
"""What a warning looks like in the output of Python, a compiler or a logger."""

SERVER_WARNING = re.compile(r"\b(?:WARNING|ERROR|CRITICAL|FATAL)\b|Traceback \(most recent call last\)|\b\w*Warning: ")
"""What a warning looks like in the log of vLLM's server."""


@dataclass(frozen=True)
class LogLine:
    """A line as people see it. pattern: the regular expression that finds it in a log; None where people must look."""

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
