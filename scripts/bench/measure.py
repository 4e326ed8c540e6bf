"""Measures commands, ours and a peer's in turns, so that both see the same machine. Ratios are those of the medians."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


class Failed(Exception):
    """A measured command failed. The text is the command and the end of its output."""


@dataclass(frozen=True)
class Sample:
    """One run. seconds: wall time. cpu: user and system seconds of the command and of its children that ended; what a
    daemon does for it is not in there. peak: resident bytes of the largest process, and at least of this one."""

    seconds: float
    cpu: float
    peak: int


@dataclass(frozen=True)
class Row:
    """What was measured. work: for the reader. target: of the ratio, or of seconds if there is no peer.

    size: what a curve grows by, such as the number of recipes; None for a row that is no point of a curve.
    """

    case: str
    work: str
    ours: Sequence[Sample]
    peer: str = ""
    theirs: Sequence[Sample] = ()
    target: float | None = None
    note: str = ""
    size: int | None = None

    @property
    def seconds(self) -> float:
        """The median of our runs."""
        return median(self.ours)

    @property
    def ratio(self) -> float | None:
        """Our median by the peer's, or None without a peer."""
        return self.seconds / median(self.theirs) if self.theirs else None

    @property
    def holds(self) -> bool | None:
        """Whether the target is met; None without a target."""
        if self.target is None:
            return None
        measured = self.ratio if self.theirs else self.seconds
        return measured is not None and measured <= self.target


@dataclass(frozen=True)
class Command:
    """A command. text: its words, or a line for bash. environ: variables besides those of this process."""

    text: Sequence[str] | str
    environ: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None

    def run(self) -> Sample:
        """Run the command once. Raises Failed."""
        words = ["bash", "-o", "pipefail", "-c", self.text] if isinstance(self.text, str) else list(self.text)
        # As installed: with bytecode.
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        begin = time.monotonic()
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**environ, **self.environ},
            cwd=self.folder,
        )
        assert process.stdout is not None
        end = b""
        while chunk := process.stdout.read(1 << 16):
            end = (end + chunk)[-2000:]
        process.stdout.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - begin
        if process.returncode:
            raise Failed(f"{self.text}: exit status {process.returncode}\n{end.decode(errors='replace')}")
        return Sample(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def median(samples: Sequence[Sample]) -> float:
    """The median of the wall times, in seconds."""
    return statistics.median(sample.seconds for sample in samples)


def spread(samples: Sequence[Sample]) -> float:
    """The largest difference of a wall time from the median, as a share of the median."""
    middle = median(samples)
    return max(abs(sample.seconds - middle) for sample in samples) / middle


def in_turns(runs: int, *sides: Command, before: Sequence[Callable[[], object] | None] = ()) -> list[list[Sample]]:
    """The samples of each side. before: what prepares each side, outside of the measurement, before each run."""
    found: list[list[Sample]] = [[] for _ in sides]
    for _ in range(runs):
        for number, side in enumerate(sides):
            prepare = before[number] if number < len(before) else None
            if prepare is not None:
                prepare()
            found[number].append(side.run())
    return found
