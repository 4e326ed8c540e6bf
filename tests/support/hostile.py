"""Objects that a hostile or damaged folder has in place of a file; a time limit; processes that are killed half way."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

TEXT = "the user's own text\n"
PLAIN = 12345
"""A user and group that are not root."""
_CALLS = ("open", "os.", "fcntl.", "tempfile.", "shutil.")


class Hangs(BaseException):
    """Not an Exception: nothing may catch it."""


@contextmanager
def limit(seconds: float = 5) -> Iterator[None]:
    """Raises Hangs when the body does not end in time; opening a pipe may wait for ever."""

    def end(*_: object) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Outside:
    """Files beside an attacked folder that must not change. kinds: put something in place of a file."""

    def __init__(self, folder: Path) -> None:
        self._mine, self._new = folder / "mine", folder / "created"
        self._mine.write_text(TEXT)

    def put(self, kind: str, path: Path) -> None:
        """Replace a file by something else."""
        path.unlink(missing_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            (path / "below").mkdir(parents=True)
        else:
            path.symlink_to(self._mine if kind == "link" else self._new)

    def assert_unchanged(self) -> None:
        """Nothing was written through a link."""
        assert self._mine.read_text() == TEXT
        assert not os.path.lexists(self._new)


KINDS = ("pipe", "folder", "link", "link to nothing")


def killed_at(number: int, work: Callable[[], object], calls: tuple[str, ...] = _CALLS) -> bool:
    """Run `work` in a child process that dies by SIGKILL before its call `number` to the operating system.

    calls: which calls count, by the beginnings of the names of Python's audit events. False when the work ended before.
    """
    child = os.fork()
    if child == 0:
        left = number

        def count(event: str, _: object) -> None:
            nonlocal left
            if event.startswith(calls):
                left -= 1
                if left == -1:  # Only then: os.kill is an event too.
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def as_plain_user(work: Callable[[], object]) -> None:
    """Run `work` in a child process that is not root, and raise AssertionError when it fails."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(PLAIN)
                os.setuid(PLAIN)
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@contextmanager
def plain_folder() -> Iterator[Path]:
    """A folder that `as_plain_user` can reach and owns; pytest's own folders admit nobody else than their owner."""
    with TemporaryDirectory() as name:
        if os.geteuid() == 0:
            os.chown(name, PLAIN, PLAIN)
        yield Path(name)
