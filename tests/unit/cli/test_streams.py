"""Standard streams that are closed, full or not read: no traceback, and the right message and exit code."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys

import pytest

from tests.support.cli import Cli, Said

LIST = "list bases"
WRONG = "plan --recipe nope"


def shell(cli: Cli, script: str) -> Said:
    """Run a script in which `builder` is the command under test."""
    cli.write()
    bash = shutil.which("bash")
    assert bash is not None
    builder = f'builder() {{ {shlex.quote(sys.executable)} -m builder "$@"; }}\n'
    done = subprocess.run(
        [bash, "-c", builder + script], capture_output=True, env=cli.environment({}), cwd=cli.folder, check=False
    )
    said = Said(done.returncode, done.stdout.decode(), done.stderr.decode())
    assert "Traceback" not in said.err, said.err
    assert "a bug" not in said.err, said.err
    return said


@pytest.mark.parametrize(
    ("command", "code"),
    [(f"{LIST} --json >&-", 0), (f"{LIST} 2>&- <&-", 0)],
)
def test_a_closed_stream_is_no_error(cli: Cli, command: str, code: int) -> None:
    assert shell(cli, f"builder {command}").code == code


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_an_error_keeps_its_code(cli: Cli, closed: str) -> None:
    said = shell(cli, f"builder {WRONG} {closed}")
    assert said.code == 2
    assert ("nope" in said.err) == (closed == ">&-")


@pytest.mark.parametrize("command", [LIST, "--help"])
def test_a_full_disk_behind_standard_output_is_5(cli: Cli, command: str) -> None:
    said = shell(cli, f"builder {command} >/dev/full")
    assert said.code == 5
    assert said.err.startswith("builder: No space left on device: standard output [os-error]\n")


@pytest.mark.parametrize("command", [LIST, "rules"])
def test_a_reader_that_leaves_early_is_no_error(cli: Cli, command: str) -> None:
    reader = "head -c 1 >/dev/null"
    said = shell(cli, f"PATH=$PATH:/usr/bin:/bin; builder {command} | {reader}; echo ${{PIPESTATUS[0]}}")
    assert (said.out, said.err) == ("0\n", "")


def test_a_full_standard_error_does_not_stop_a_build(online: Cli) -> None:
    said = shell(online, "builder build --recipe tiny 2>/dev/full")
    assert said.code == 0
    assert said.out.startswith("sha256:")


SWALLOWED = """
import os, signal, time
import builder.cli.app
from builder.__main__ import main
from builder.errors import InvalidError

def run(arguments):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    except KeyboardInterrupt:
        pass
    raise {error}

builder.cli.app.run = run
main()
"""


@pytest.mark.parametrize("error", ["InvalidError('nonsense')", "ValueError('nonsense')"])
def test_an_error_that_follows_ctrl_c_is_reported_as_stopped(cli: Cli, error: str) -> None:
    # Compiled code that validates cannot pass a KeyboardInterrupt on, and says that the value is wrong.
    script = SWALLOWED.format(error=error)
    environ = cli.environment({})
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environ, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.startswith("builder: stopped [stopped]")


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
