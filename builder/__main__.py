"""The command `builder`: runs the command line and turns every error into a message and an exit code."""

from __future__ import annotations

import io
import os
import signal
import sys
from types import FrameType

STOPPED = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""Exit codes of a stopped command, as shells spell them: 128 and the signal's number."""

_stopped_by = signal.SIGINT


def main() -> None:
    """Entry point. Exit codes: `builder.errors.ExitCode`; 130 after Ctrl-C, 143 after SIGTERM."""
    handle_sigterm()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A Dockerfile is UTF-8, and a message must come out, whatever the locale.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.exit(_run())


def handle_sigterm() -> None:
    """From here on SIGTERM ends this process as Ctrl-C does: what is under way is undone, containers are removed."""
    signal.signal(signal.SIGTERM, _terminated)


def _terminated(number: int, frame: FrameType | None) -> None:
    """What ends jobs of CI and services ends a build as Ctrl-C does: engines stop, and the store is left clean."""
    global _stopped_by  # noqa: PLW0603 - a handler has no other way to tell
    _stopped_by = signal.Signals(number)
    raise KeyboardInterrupt


def _run() -> int:
    from builder.errors import BuilderError, ExitCode

    try:
        from builder.cli.app import run

        code = run()
        sys.stdout.flush()
        return code
    except BuilderError as error:
        sys.stdout.flush()
        print(f"builder: {error}", file=sys.stderr)
        return int(error.code)
    except KeyboardInterrupt:
        print("builder: stopped; what was finished stays in the store, run the same command to go on", file=sys.stderr)
        return STOPPED[_stopped_by]
    except BrokenPipeError:
        # The reader of our output has left; there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.DONE)
    except OSError as error:
        print(f"builder: {error.strerror or error}: {error.filename or 'no file named'}", file=sys.stderr)
        print("  next:  check permissions and free space there", file=sys.stderr)
        return int(ExitCode.ENGINE)
    except Exception as error:
        if os.environ.get("BUILDER_DEBUG"):
            raise
        print(f"builder: a bug: {type(error).__name__}: {error}", file=sys.stderr)
        print("  next:  please report it, with the output of the same command under BUILDER_DEBUG=1", file=sys.stderr)
        return int(ExitCode.BUG)


if __name__ == "__main__":
    main()
