"""Expected failures: one class for each exit code, and a stable id for each message."""

from __future__ import annotations

from enum import IntEnum
from typing import Self

_LONGEST = 600
"""Characters of what failed that a message repeats: it may be a word of 100 kB."""


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
    """An expected failure. A user sees it as a message, never as a traceback.

    what: what failed. id: the stable name of this message, lower-case words joined by hyphens; scripts and tests
    compare it, so it stays when the text changes. where: the file and line, layer or reference where it happened.
    cause: the likely reason. next: the command or action to try next.
    """

    code = ExitCode.BUG

    def __init__(self, what: str, *, id: str = "", where: str = "", cause: str = "", next: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.id = id
        self.where = where
        self.cause = cause
        self.next = next

    def replaced(self, **parts: str) -> Self:
        """The same error, with other text in the named parts."""
        # Subclasses have constructors of their own, so the copy is made without one.
        copy = type(self).__new__(type(self), *self.args)
        copy.__dict__.update(self.__dict__, **parts)
        return copy

    def __str__(self) -> str:
        what = self.what if len(self.what) <= _LONGEST else f"{self.what[:_LONGEST]}…"
        # The names of a stranger's files may have line feeds.
        first = (f"{self.where}: {what}" if self.where else what).replace("\n", "\\n")
        lines = [f"{first} [{self.id}]" if self.id else first]
        if self.cause:
            lines.append(f"  cause: {self.cause}")
        if self.next:
            lines.append(f"  next:  {self.next}")
        return "\n".join(lines)


class UsageError(BuilderError):
    """The command line asks for something that does not exist or does not fit."""

    code = ExitCode.USAGE


class InvalidError(BuilderError):
    """A recipe, base, layer or lock file is not valid, or a layer places a file at a forbidden path."""

    code = ExitCode.INVALID


class PinError(BuilderError):
    """A pin is missing or stale, or the content does not match it."""

    code = ExitCode.PIN


class OtherSourceError(PinError):
    """The bytes of one source do not match their digest, and another source may have the right ones: read again."""


class EngineError(BuilderError):
    """No engine is found, an engine's build fails, or this machine has too little space for the build."""

    code = ExitCode.ENGINE


class NetworkError(BuilderError):
    """A registry or mirror does not answer, refuses, or sends an invalid response."""

    code = ExitCode.NETWORK


class SmokeError(BuilderError):
    """A smoke check failed."""

    code = ExitCode.SMOKE


class DiffersError(BuilderError):
    """Two builds of the same layer or image have different bytes. `builder diff` exits with this code, too."""

    code = ExitCode.DIFFERS


class RuleError(BuilderError):
    """A recipe breaks a rule of the hardware."""

    code = ExitCode.RULE


class Cancelled(Exception):
    """The caller cancelled the work: not a failure, and never shown to a user."""
