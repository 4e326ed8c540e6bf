"""Completion: real shells ask, after the installation that the help names."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from builder.cli.completion import SHELLS, values
from tests.support.cli import Cli
from tests.support.nightly import NIGHTLY


@pytest.fixture
def machine(cli: Cli) -> dict[str, str]:
    """The environment of a user who has `builder` in PATH."""
    cli.write()
    program = cli.folder / "bin/builder"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m builder "$@"\n')
    program.chmod(0o755)
    path = f"{cli.folder / 'bin'}:/usr/bin:/bin"
    return cli.environment({"PATH": path, "TERM": "dumb", "COLUMNS": "200", "ZDOTDIR": str(cli.folder / "home")})


def installed(shell: str, environ: dict[str, str]) -> None:
    """Install completion as a user does."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    words = ["builder", "--install-completion", shell]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=True, timeout=60)
    path = done.stdout.rpartition(":")[0]
    assert Path(path).is_file()
    assert Path(path).is_relative_to(environ["HOME"])


def asked(shell: str, line: str, environ: dict[str, str]) -> list[str]:
    """What a shell offers for a line."""
    if shell == "fish":
        command = ["fish", "--command", f"complete --do-complete '{line}'"]
    else:
        words = line.split(" ")
        setting = f"source ~/.bashrc; COMP_WORDS=({line}{' ' + chr(34) * 2 if not words[-1] else ''}); "
        setting += f"COMP_CWORD={len(words) - 1}; _builder_completion builder; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        command = ["bash", "--norc", "-c", setting]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=60)
    return [each.split("\t")[0] for each in done.stdout.splitlines()]


LINES = [
    ("builder pla", "plan"),
    ("builder plan tin", "tiny"),
    ("builder build tiny --base her", "hermetic"),
    ("builder run --recipe tiny --profile n", "ngram"),
    ("builder test --tier c", "cpu"),
    ("builder build --engine b", "buildah"),
    ("builder run --format co", "compose"),
    ("builder explain plac", "placed"),
    ("builder rules GB10-00", "GB10-007"),
]


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_a_shell_completes_names_and_values(machine: dict[str, str], shell: str) -> None:
    installed(shell, machine)
    # Each answer is a process, and what it says is the same in every shell.
    for line, expected in LINES if NIGHTLY else LINES[:4] if shell == "bash" else LINES[1:2]:
        assert expected in asked(shell, line, machine), line


def typed(machine: dict[str, str], *lines: tuple[str, str]) -> None:
    """Type each line in zsh, and wait for what is expected there."""
    installed("zsh", machine)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(machine["HOME"])
        os.execvpe("zsh", ["zsh", "-i"], machine)
    try:
        said = ""
        for line, expected in lines:
            os.write(terminal, line.encode())
            end = time.monotonic() + 30
            while expected not in said and time.monotonic() < end:
                if select.select([terminal], [], [], 1)[0]:
                    said += os.read(terminal, 4096).decode(errors="replace")
            assert expected in said
            os.write(terminal, b"\x15")
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)


def test_zsh_completes_what_is_typed(machine: dict[str, str]) -> None:
    typed(machine, ("builder plan tin\t", "tiny"), ("builder run --format comp\t", "compose"))


def test_a_name_in_a_strangers_folder_runs_nothing(machine: dict[str, str], cli: Cli) -> None:
    """zsh evaluates what completion prints."""
    layer(cli, r"tiny\$(>ran)")
    typed(machine, ("builder show tin\t", "builder show tiny"))
    assert not (cli.folder / "home/ran").exists()


def test_a_name_that_a_shell_would_run_is_not_offered(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every shell puts it into the line that the user runs."""
    cli.write()
    monkeypatch.setenv("BUILDER_PROJECT", str(cli.folder / "project"))
    for name in ("x$(y)", "x`y`", "x;y", "x'y", 'x"y', "x y", "x\ny", "x&y", "x|y", "x>y", "x\\y", "x\x1by"):
        layer(cli, name)
    for command, parameter in (("show", "name"), ("new", "layer"), ("add", "beside")):
        offered = values(command, parameter, {})
        assert offered
        assert not [value for value in offered if value.startswith("x")]


def layer(cli: Cli, name: str) -> None:
    folder = cli.folder / "project/dockerfiles/layers" / name
    folder.mkdir(parents=True)
    (folder / "layer.yaml").write_text("name: x\n")


def test_a_broken_project_completes_nothing_and_says_nothing(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.small.files["recipes/tiny.yaml"] = "name: [\n"
    cli.write()
    monkeypatch.setenv("BUILDER_PROJECT", str(cli.folder / "project"))
    assert values("build", "base", {"recipe": "tiny"}) == []
    assert "tiny" in values("build", "recipe", {})


def test_the_scripts_are_printed(cli: Cli) -> None:
    for shell in SHELLS:
        assert "_BUILDER_COMPLETE" in cli("--show-completion", shell).out
    assert cli("--show-completion", "csh").code == 2
