"""The entry point: runs one command, converts every error to a message and an exit code, handles signals."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from types import FrameType

STOPPED = {signal.SIGHUP: 129, signal.SIGINT: 130, signal.SIGTERM: 143}
"""Exit codes of a command that a signal stopped: 128 plus the number of the signal, as in shells."""

_stopped_by: signal.Signals | None = None
_interrupt_lost = False


def main() -> None:
    """Entry point. Exit codes: `builder.errors.ExitCode`; 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP."""
    # Until the command is imported: modules are no garbage, and looking for some in them takes an eighth of the start.
    gc.disable()
    handle_signals()
    _open_standard_streams()
    # After this function Ctrl-C could only interrupt the cleanup of the interpreter.
    atexit.register(_ignore_signals)
    sys.exit(run_and_report())


def run_and_report(arguments: Sequence[str] | None = None) -> int:
    """Run one command, print its error if it fails, and return its exit code.

    arguments: of the command line; None: those of this process. Signals and standard streams stay as they are.
    """
    # Imports of the package are inside functions, so that Ctrl-C during an import is handled too.
    from builder.errors import ExitCode

    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of standard output has closed it, as `head` does: that is no error.
        code = int(ExitCode.DONE)
    except OSError as error:
        _report(_os_error(error))
        code = int(ExitCode.ENGINE)
    # Otherwise the interpreter would flush the buffer at exit, and fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def handle_signals() -> None:
    """SIGTERM and SIGHUP (the terminal has gone) end this process as Ctrl-C does, by KeyboardInterrupt.

    So engines, containers and unfinished files go. A shell starts background jobs with SIGINT ignored: it is handled
    there too. nohup ignores SIGHUP: that stays. A timer runs once a second: without it, Python handles a signal that
    arrives just before the main thread waits for a lock when that wait ends.
    """
    for number in STOPPED:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _on_signal)
    sys.unraisablehook = _on_unraisable
    signal.signal(signal.SIGALRM, _on_timer)
    signal.setitimer(signal.ITIMER_REAL, 1, 1)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)


def _on_signal(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, so that engines stop and the store is left clean after SIGTERM as after Ctrl-C."""
    global _stopped_by  # noqa: PLW0603 - a signal handler cannot return a value
    _stopped_by = signal.Signals(number)
    raise KeyboardInterrupt


def _on_unraisable(error: sys.UnraisableHookArgs) -> None:
    """Note a KeyboardInterrupt that was lost in a finalizer or in compiled code, such as pydantic's."""
    global _interrupt_lost  # noqa: PLW0603 - as in `_on_signal`
    if isinstance(error.exc_value, KeyboardInterrupt):
        _interrupt_lost = True
    else:
        sys.__unraisablehook__(error)


def _on_timer(number: int, frame: FrameType | None) -> None:
    """Raise a lost KeyboardInterrupt again."""
    global _interrupt_lost  # noqa: PLW0603 - as in `_on_signal`
    if _interrupt_lost:
        _interrupt_lost = False
        raise KeyboardInterrupt


class _Stdout(io.TextIOWrapper):
    """Standard output; its OSErrors have `standard output` as file name."""

    def write(self, text: str) -> int:
        with _naming_stdout():
            return super().write(text)

    def flush(self) -> None:
        with _naming_stdout():
            super().flush()


class _Stderr(io.TextIOWrapper):
    """Standard error; a command continues when a message cannot be written."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


@contextlib.contextmanager
def _naming_stdout() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.filename = "standard output"
        raise


def _open_standard_streams() -> None:
    """Make the standard streams write UTF-8 in any locale, and open those that the caller closed on /dev/null.

    A closed stream would give its number to the next file that is opened.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115
    for name, kind in (("stdout", _Stdout), ("stderr", _Stderr)):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            lines = stream.line_buffering
            utf8 = kind(stream.detach(), encoding="utf-8", errors="backslashreplace", line_buffering=lines)
            setattr(sys, name, utf8)


def _run(arguments: Sequence[str] | None) -> int:
    """Run one command; report every error except those of standard output."""
    from builder.errors import BuilderError, ExitCode

    try:
        from builder.cli.app import run

        return run(arguments)
    except BuilderError as error:
        return _failed(f"builder: {error}", int(error.code))
    except KeyboardInterrupt:
        return _failed("builder: stopped [stopped]", STOPPED[signal.SIGINT])
    except BrokenPipeError:
        raise
    except OSError as error:
        return _failed(_os_error(error), int(ExitCode.ENGINE))
    except MemoryError:
        text = "builder: out of memory [out-of-memory]\n  next:  free memory, or raise the limit (ulimit -v)"
        return _failed(text, int(ExitCode.ENGINE))
    except Exception as error:
        if os.environ.get("BUILDER_DEBUG"):
            raise
        return _failed(
            f"builder: a bug: {type(error).__name__}: {error} [bug]\n"
            "  next:  please report it, with the output of the same command under BUILDER_DEBUG=1",
            int(ExitCode.BUG),
        )


def _failed(text: str, code: int) -> int:
    """Report an error and return its exit code. After a signal every error is a consequence of that signal."""
    if _stopped_by is not None:
        _report("builder: stopped [stopped]\n  next:  run the same command to continue: finished work is in the store")
        return STOPPED[_stopped_by]
    _report(text)
    return code


def _os_error(error: OSError) -> str:
    from builder.text import one_line

    where = one_line(f": {error.filename}") if error.filename is not None else ""
    return f"builder: {error.strerror or error}{where} [os-error]\n  next:  check permissions and free space there"


def _report(text: str) -> None:
    from builder.cli.output import fitted
    from builder.text import with_status

    # Where both streams go to one pipe, an error comes behind the results that it is about.
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    # The next step is a command to be pasted: it stays whole.
    lines = (line if line.startswith("  next:") else fitted(line, sys.stderr, hang=9) for line in text.split("\n"))
    print(with_status("\n".join(lines), "builder", sys.stderr), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
