"""The command `builder`: runs the command line and turns every error into a message and an exit code."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

STOPPED = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""Exit codes of a stopped command, as shells spell them: 128 and the signal's number."""

_stopped_by: signal.Signals | None = None


def main() -> None:
    """Entry point. Exit codes: `builder.errors.ExitCode`; 130 after Ctrl-C, 143 after SIGTERM."""
    handle_sigterm()
    signal.signal(signal.SIGINT, _terminated)
    sys.unraisablehook = _unraisable
    _open_standard_streams()
    # At the end nothing is left to be stopped but the interpreter's own clearing up.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    sys.exit(_run())


def handle_sigterm() -> None:
    """From here on SIGTERM ends this process as Ctrl-C does: what is under way is undone, containers are removed."""
    signal.signal(signal.SIGTERM, _terminated)


def _terminated(number: int, frame: FrameType | None) -> None:
    """What ends jobs of CI and services ends a build as Ctrl-C does: engines stop, and the store is left clean."""
    global _stopped_by  # noqa: PLW0603 - a handler has no other way to tell
    _stopped_by = signal.Signals(number)
    raise KeyboardInterrupt


def _unraisable(found: sys.UnraisableHookArgs) -> None:
    """Compiled code, as pydantic's, cannot always pass a KeyboardInterrupt on; what it then does ends in `_guarded`."""
    if not isinstance(found.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(found)


class _Results(io.TextIOWrapper):
    """Standard output: an error of it says so."""

    def write(self, text: str) -> int:
        with _named():
            return super().write(text)

    def flush(self) -> None:
        with _named():
            super().flush()


class _Messages(io.TextIOWrapper):
    """Standard error: that a message cannot be told is no reason to give up the work."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


@contextlib.contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.filename = "standard output"
        raise


def _open_standard_streams() -> None:
    """Text that any locale takes, for a Dockerfile is UTF-8 and a message must come out; and a stream for each.

    A stream that the caller closed leads to nowhere: else the next file that is opened would take its number.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115
    for name, kind in (("stdout", _Results), ("stderr", _Messages)):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            lines = stream.line_buffering
            made = kind(stream.detach(), encoding="utf-8", errors="backslashreplace", line_buffering=lines)
            setattr(sys, name, made)


def _run() -> int:
    """Run the command line; every way in which it can end is told and has its exit code."""
    from builder.errors import ExitCode

    try:
        code = _guarded()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of our output has left; there is nobody to tell.
        code = int(ExitCode.DONE)
    except OSError as error:
        _tell(_disk_words(error))
        code = int(ExitCode.ENGINE)
    # What is still held for it would be written at the end, and fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _disk_words(error: OSError) -> str:
    where = f": {error.filename}" if error.filename is not None else ""
    return f"builder: {error.strerror or error}{where}\n  next:  check permissions and free space there"


def _tell(text: str) -> None:
    from builder.text import printable

    print(printable(text), file=sys.stderr, flush=True)


def _failed(text: str, code: int) -> int:
    """Tell what failed; but what goes wrong once a signal has come is because of that."""
    if _stopped_by is not None:
        _tell("builder: stopped; what was finished stays in the store, run the same command to go on")
        return STOPPED[_stopped_by]
    _tell(text)
    return code


def _guarded() -> int:
    from builder.errors import BuilderError, ExitCode

    try:
        from builder.cli.app import run

        return run()
    except BuilderError as error:
        return _failed(f"builder: {error}", int(error.code))
    except KeyboardInterrupt:
        return _failed("builder: stopped", STOPPED[signal.SIGINT])
    except BrokenPipeError:
        raise
    except OSError as error:
        return _failed(_disk_words(error), int(ExitCode.ENGINE))
    except MemoryError:
        text = "builder: no memory left\n  next:  free some, or raise the limit (ulimit -v)"
        return _failed(text, int(ExitCode.ENGINE))
    except Exception as error:
        if os.environ.get("BUILDER_DEBUG"):
            raise
        return _failed(
            f"builder: a bug: {type(error).__name__}: {error}\n"
            "  next:  please report it, with the output of the same command under BUILDER_DEBUG=1",
            int(ExitCode.BUG),
        )


if __name__ == "__main__":
    main()
