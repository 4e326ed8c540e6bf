"""Standard streams that are closed, full or not read: no traceback, and the right message and exit code."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest

import builder.__main__
import builder.cli.app
from builder.errors import InvalidError
from tests.support.cli import Cli, CommandResult, run_here

LIST = "list bases"
WRONG = "plan --recipe nope"


def shell(cli: Cli, script: str) -> CommandResult:
    """Run a script in which `builder` is the command under test."""
    cli.write()
    bash = shutil.which("bash")
    assert bash is not None
    builder = f'builder() {{ {shlex.quote(sys.executable)} -m builder "$@"; }}\n'
    done = subprocess.run(
        [bash, "-c", builder + script], capture_output=True, env=cli.environment({}), cwd=cli.folder, check=False
    )
    said = CommandResult(done.returncode, done.stdout.decode(), done.stderr.decode())
    assert "Traceback" not in said.err, said.err
    assert "a bug" not in said.err, said.err
    return said


def into(cli: Cli, file: IO[bytes], *words: str) -> CommandResult:
    """Run a command in this process, with its standard output going to a file."""
    cli.write()
    return run_here(words, environ=cli.environment({}), folder=cli.folder, stdout=file)


def test_closed_streams_are_no_error(cli: Cli) -> None:
    assert shell(cli, f"builder {LIST} --json <&- >&- 2>&-").code == 0


@pytest.mark.parametrize("closed", [">&-", "2>/dev/full"])
def test_an_error_keeps_its_code(cli: Cli, closed: str) -> None:
    said = shell(cli, f"builder {WRONG} {closed}")
    assert said.code == 2
    assert ("[name-unknown]" in said.err) == (closed == ">&-")


def test_a_full_disk_behind_standard_output_is_5_and_is_named(cli: Cli) -> None:
    said = shell(cli, f"builder {LIST} >/dev/full")
    assert said.code == 5
    assert said.err.startswith("builder: No space left on device: standard output [os-error]\n")


@pytest.mark.parametrize("command", ["--help", "rules"])
def test_a_full_disk_behind_standard_output_is_5(cli: Cli, command: str) -> None:
    with Path("/dev/full").open("wb") as full:
        into(cli, full, command).failed(5, "os-error")


def test_a_reader_that_leaves_early_is_no_error(cli: Cli) -> None:
    reader = "head -c 1 >/dev/null"
    said = shell(cli, f"PATH=$PATH:/usr/bin:/bin; builder {LIST} | {reader}; echo ${{PIPESTATUS[0]}}")
    assert (said.out, said.err) == ("0\n", "")


@pytest.mark.parametrize("command", ["rules", "render --recipe tiny", "--help"])
def test_a_reader_that_has_left_is_no_error(cli: Cli, command: str) -> None:
    read, written = os.pipe()
    os.close(read)
    with os.fdopen(written, "wb") as pipe:
        said = into(cli, pipe, *command.split())
    assert (said.code, said.err) == (0, "")


def test_results_and_messages_in_one_pipe_keep_their_order(cli: Cli) -> None:
    """As in the log of a CI job: "printed above" stands below."""
    cli.small.files["recipes/tiny.yaml"]["base"] = "nowhere"
    lines = shell(cli, "builder lint tiny 2>&1").out.splitlines()
    assert "[recipe-base-unknown]" in lines[0] and "[lint-refused]" in lines[1], lines


def test_a_full_standard_error_does_not_stop_a_build(online: Cli) -> None:
    said = shell(online, "builder build --recipe tiny 2>/dev/full")
    assert said.code == 0
    assert said.out.startswith("sha256:")


@pytest.mark.parametrize("error", [InvalidError("nonsense", id="key-unknown"), ValueError("nonsense")])
def test_an_error_that_follows_ctrl_c_is_reported_as_stopped(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def run(arguments: Sequence[str] | None = None) -> int:
        # Compiled code that validates cannot raise a KeyboardInterrupt, and reports an invalid value instead.
        with pytest.raises(KeyboardInterrupt):
            builder.__main__._on_signal(signal.SIGINT, None)
        raise error

    monkeypatch.setattr(builder.__main__, "_stopped_by", None)
    monkeypatch.setattr(builder.cli.app, "run", run)
    cli("list").failed(130, "stopped")


def test_a_caller_of_main_can_still_be_interrupted(cli: Cli) -> None:
    script = (
        "import signal, sys\nfrom builder.__main__ import main\nsys.argv = ['builder', '--version']\n"
        "try:\n    main()\nexcept SystemExit:\n    print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=cli.environment({}), check=True
    )
    assert done.stdout.splitlines()[1] == "False"


def test_control_characters_are_not_printed(cli: Cli) -> None:
    said = cli("test", "oci:\x1b]0;x\x07\x9b31m\u202e")
    assert said.code == 2
    assert said.err.startswith("builder: ?]0;x??31m?: ")
    assert not set(said.err) & set("\x1b\x07\x9b\u202e")


def test_control_characters_are_escaped_in_json(cli: Cli) -> None:
    from builder.text import escaped

    text = '"\x1b\x9b\u202e\udcff日本"'
    assert escaped(text) == '"\\u001b\\u009b\\u202e\\udcff日本"'
