"""The list of commands: each is found, loaded only when called, and documented."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest

from builder.cli.app import COMMANDS, load_command
from builder.cli.command import declared
from builder.cli.share.serve import ADDRESS
from builder.share import PORT
from tests.support.cli import run_here
from tests.unit.cli.conftest import Cli

FOLDER = Path(sys.modules["builder.cli.app"].__file__ or "").parent
LOADED = """
import sys
from builder.__main__ import run_and_report
for command in sys.argv[1:]:
    run_and_report([command])
    print("LOADED", *sys.modules)
"""
COLLECTOR = """
import gc
from builder import __main__
run, states = __main__.run_and_report, []
def run_and_report():
    states.append(gc.isenabled())
    run()
    print("COLLECTOR", states[0], gc.isenabled())
__main__.run_and_report = run_and_report
__main__.main()
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_a_module_help_and_a_summary_of_one_line(cli: Cli, name: str) -> None:
    module, _, function = COMMANDS[name][0].partition(":")
    assert (FOLDER / module.replace(".", "/")).with_suffix(".py").is_file()
    assert module.rpartition(".")[2] == name
    assert function.strip("_") == name
    command = load_command(name)
    assert inspect.getdoc(command.callback) or command.help
    said = cli(name, "--help")
    assert said.code == 0
    assert f"Usage: builder {name}" in said.out


def parameters(function: Any) -> list[Any]:
    """Names, defaults and types of a function's parameters, and what typer is told about each."""
    found = []
    for name, each in inspect.signature(function, eval_str=True).parameters.items():
        kind, *told = get_args(each.annotation) if get_args(each.annotation)[1:] else (each.annotation,)
        found.append((name, each.default, str(kind), [vars(item) for item in told]))
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_the_head_of_a_command_is_that_of_its_function(name: str) -> None:
    module, _, function = COMMANDS[name][0].partition(":")
    whole, head = getattr(import_module(f"builder.cli.{module}"), function), declared(f"builder.cli.{module}", function)
    assert parameters(head) == parameters(whole)
    assert inspect.getdoc(head) == inspect.getdoc(whole)


def test_the_address_of_serve_has_the_port_of_a_daemons_server() -> None:
    assert f"127.0.0.1:{PORT}" == ADDRESS


def test_only_the_called_command_is_imported(cli: Cli) -> None:
    cli.write()
    command = [sys.executable, "-c", LOADED, "--help", "rules"]
    done = subprocess.run(command, env=cli.environment({}), cwd=cli.folder, capture_output=True, text=True, check=True)
    modules = {f"builder.cli.{module.partition(':')[0]}" for module, _ in COMMANDS.values()}
    loaded = [modules & set(line.split()) for line in done.stdout.splitlines() if line.startswith("LOADED ")]
    assert loaded == [set(), {"builder.cli.recipe.rules"}]


def test_a_command_runs_with_the_garbage_collector_which_its_imports_do_without(cli: Cli) -> None:
    cli.write()
    done = subprocess.run(
        [sys.executable, "-c", COLLECTOR, "list", "bases"],
        env=cli.environment({}),
        cwd=cli.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "COLLECTOR False True"


def test_a_misspelt_command_is_2_and_suggests_another(cli: Cli) -> None:
    said = cli("biuld")
    assert said.code == 2
    assert "Did you mean 'build'" in said.err


def test_a_run_in_this_process_leaves_nothing_behind(cli: Cli) -> None:
    cli.write()
    before = (dict(os.environ), Path.cwd(), sys.stdout, sys.stderr, signal.getsignal(signal.SIGINT))
    said = run_here(("list", "bases"), environ=cli.environment({"ONLY": "here"}), folder=cli.folder)
    assert (said.code, said.err) == (0, "")
    assert (dict(os.environ), Path.cwd(), sys.stdout, sys.stderr, signal.getsignal(signal.SIGINT)) == before


def test_a_run_in_this_process_prints_what_a_process_prints(cli: Cli) -> None:
    words = ("plan", "--recipe", "nope")
    assert cli(*words) == cli.process(*words)
