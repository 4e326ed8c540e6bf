"""What can go wrong, each with the exit code that scripts rely on."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of `builder`; they are part of the command-line interface."""

    DONE = 0
    BUG = 1
    USAGE = 2
    INVALID = 3
    PIN = 4
    ENGINE = 5
    NETWORK = 6
    SMOKE = 7
    DIFFERS = 8
    RULE = 9


class BuilderError(Exception):
    """An expected failure, told in four parts.

    what: what failed. where: the file and line, layer or reference it happened at.
    cause: the likely reason. next: the command or action to try next.
    """

    code = ExitCode.BUG

    def __init__(self, what: str, *, where: str = "", cause: str = "", next: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.cause = cause
        self.next = next

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.what}" if self.where else self.what]
        if self.cause:
            lines.append(f"  cause: {self.cause}")
        if self.next:
            lines.append(f"  next:  {self.next}")
        return "\n".join(lines)


class UsageError(BuilderError):
    """The command line asks for something that does not exist or does not fit."""

    code = ExitCode.USAGE


class InvalidError(BuilderError):
    """A recipe, base, layer or lock file is not valid, or a layer writes where it must not."""

    code = ExitCode.INVALID


class PinError(BuilderError):
    """A pin is missing, stale, or what was found does not match it."""

    code = ExitCode.PIN


class EngineError(BuilderError):
    """No engine, an engine's build that failed, or a machine that cannot hold the build."""

    code = ExitCode.ENGINE


class NetworkError(BuilderError):
    """A registry or mirror did not answer, refused, or answered nonsense."""

    code = ExitCode.NETWORK


class SmokeError(BuilderError):
    """A smoke check failed."""

    code = ExitCode.SMOKE


class DiffersError(BuilderError):
    """Two builds of one thing are not the same bytes."""

    code = ExitCode.DIFFERS


class RuleError(BuilderError):
    """A recipe breaks a rule of the hardware."""

    code = ExitCode.RULE
