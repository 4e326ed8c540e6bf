"""`builder` as a user calls it: in this process, or as a process of its own where a test needs one."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from builder.__main__ import run_and_report
from tests.support.hints import check_hints
from tests.support.project import ROOT, Sample


@dataclass
class CommandResult:
    """How a command ended: its exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    def failed(self, code: int, id: str) -> None:
        """The command failed with this exit code and the error of this id, and printed no result."""
        assert (self.code, self.out) == (code, ""), self
        assert f"[{id}]" in self.err, self.err


def run_here(
    words: tuple[str, ...],
    *,
    environ: Mapping[str, str],
    folder: Path,
    stdout: IO[bytes] | None = None,
    stderr: IO[bytes] | None = None,
) -> CommandResult:
    """Run `builder` in this process, with these variables and no others, in this folder.

    Standard output and error are captured by file descriptor, so that of child processes too. stdout, stderr: files
    that they go to instead. Environment, folder, streams and warning filters are restored. What depends on the start of
    the interpreter (locale, signals, closed streams) needs a process of its own: `Cli.process`.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with _isolated(environ, folder), _captured(1, "stdout", stdout or out), _captured(2, "stderr", stderr or err):
            code = run_and_report(words)
        # A store is claimed until its object is gone, and the traceback of an error is a cycle that holds it.
        gc.collect()
        return CommandResult(code, _text(out), _text(err))


def run_process(words: tuple[str, ...], *, environ: Mapping[str, str], folder: Path) -> CommandResult:
    """Run `builder` as a process of its own, with these variables and no others, in this folder."""
    command = [sys.executable, "-m", "builder", *words]
    done = subprocess.run(command, capture_output=True, env=environ, cwd=folder, timeout=60, check=False)
    return CommandResult(done.returncode, done.stdout.decode(), done.stderr.decode())


@contextlib.contextmanager
def _isolated(environ: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Set the environment and the folder as a new process has them, and restore them."""
    before, here, temporary = dict(os.environ), Path.cwd(), tempfile.tempdir
    try:
        os.environ.clear()
        os.environ.update(environ)
        tempfile.tempdir = None
        os.chdir(folder)
        with warnings.catch_warnings():
            yield
    finally:
        os.chdir(here)
        tempfile.tempdir = temporary
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _captured(number: int, name: str, file: IO[bytes]) -> Iterator[None]:
    """A standard stream goes to a file: the descriptor, and the text stream of `sys` in front of it."""
    before = getattr(sys, name)
    before.flush()
    kept = os.dup(number)
    try:
        os.dup2(file.fileno(), number)
        with open(number, "wb", closefd=False) as raw:
            stream = io.TextIOWrapper(raw, "utf-8", "backslashreplace", line_buffering=number == 2, write_through=True)
            setattr(sys, name, stream)
            yield
            stream.flush()
    finally:
        setattr(sys, name, before)
        os.dup2(kept, number)
        os.close(kept)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


@dataclass
class Cli:
    """Calls `builder` for the small project, on a machine with neither engines nor settings."""

    folder: Path
    small: Sample
    environ: dict[str, str] = field(default_factory=dict)
    keep: bool = False
    """Leave the project as a command has changed it."""

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """The variables that the command sees."""
        fixed = {
            "PATH": str(self.folder / "bin"),
            "HOME": str(self.folder / "home"),
            "PYTHONPATH": str(ROOT),
            "BUILDER_PROJECT": str(self.folder / "project"),
            "BUILDER_STORE": str(self.folder / "store"),
            "LC_ALL": "C.UTF-8",
        }
        return {**fixed, **self.environ, **more}

    def write(self) -> None:
        """Write the small project as it is now."""
        (self.folder / "bin").mkdir(exist_ok=True)
        (self.folder / "home").mkdir(exist_ok=True)
        if self.keep and (self.folder / "project").exists():
            return
        self.small.write(self.folder / "project")

    def __call__(self, *words: str, **more: str) -> CommandResult:
        """Run to the end in this process. Keywords are further variables.

        Fails on a traceback, on code 1, and when a command in an error message would not work.
        """
        self.write()
        result = _checked(self._here(words, more))
        if result.code:

            def run(*hint: str) -> tuple[int, str]:
                done = self._here(hint, more)
                return done.code, done.err

            check_hints(result.err, run)
        return result

    def _here(self, words: tuple[str, ...], more: Mapping[str, str]) -> CommandResult:
        return run_here(words, environ=self.environment(more), folder=self.folder)

    def process(self, *words: str, **more: str) -> CommandResult:
        """The same as a process of its own."""
        self.write()
        return _checked(run_process(words, environ=self.environment(more), folder=self.folder))

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a process and do not wait."""
        self.write()
        command = [sys.executable, "-m", "builder", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=self.environment({}), cwd=self.folder, text=True, **pipes)  # type: ignore[call-overload, no-any-return]


def _checked(result: CommandResult) -> CommandResult:
    assert "Traceback" not in result.out + result.err, result.err
    assert result.code != 1, result.err
    return result
