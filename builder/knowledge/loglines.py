"""Lines of vLLM's log and what they mean, from loglines.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml


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
