"""`builder prefetch`: the downloads of a recipe's weights."""

from __future__ import annotations

import os
import shlex
import shutil
from typing import Annotated

import typer

from builder.cli.options import JsonOption, ProfileOption, RecipeOption
from builder.cli.output import print_json, say
from builder.engine.process import foreground, output
from builder.errors import EngineError, UsageError
from builder.model.variant import with_profile
from builder.project import Project
from builder.serve import formats, staging
from builder.serve.staging import Step


def prefetch(
    recipe: RecipeOption,
    profile: ProfileOption = None,
    exec_: Annotated[bool, typer.Option("--exec", help="Run the commands instead of printing them.")] = False,
    json_: JsonOption = False,
) -> None:
    """Print the commands that download a recipe's weights to the folders that `run` mounts.

    With --exec, run them (the hub's client shows its progress) and compare every file with the hub's checksums.
    """
    if exec_ and json_:
        raise UsageError(
            "--exec and --json exclude each other", id="prefetch-options-conflict", next="leave out one of them"
        )
    project = Project()
    served = with_profile(project.recipe(recipe), profile, project.shared_profiles)
    steps = staging.prefetch(served)
    if exec_:
        _execute(steps)
    elif json_:
        print_json([{"env": env, "argv": list(words)} for env, words in steps])
    else:
        for env, words in steps:
            prefix = "".join(f"{key}={formats.shell(value)} " for key, value in env.items())
            print(prefix + " ".join(formats.shell(word) for word in words))
    if served.model.gated:
        say("this model is gated: accept its licence on its page, and set HF_TOKEN")


def _execute(steps: list[Step]) -> None:
    if shutil.which("hf") is None:
        raise EngineError(
            "the command hf is not installed",
            id="hf-missing",
            next="pip install -U huggingface_hub, or print the commands without --exec",
        )
    for step in steps:
        if _run(step):
            raise EngineError(
                f"{shlex.join(step[1])} failed",
                id="hf-failed",
                next="pip install -U huggingface_hub; hf auth login",
            )
    # A client without this command is asked for its help, and says so.
    if output(("hf", "cache", "verify", "--help"), timeout=60).status:
        say("not verified: this hf has no `hf cache verify`; pip install -U huggingface_hub")
        return
    checks = [check for check in map(staging.verification, steps) if check is not None]
    for check in checks:
        if _run(check):
            raise EngineError(
                f"{check[1][4]}: files differ from the hub's checksums, or are missing",
                id="weights-differ",
                cause="see the message above",
                next=f"{shlex.join(check[1])}, then delete the files that it names, and run prefetch again",
            )
    say(f"verified: the files of {', '.join(check[1][4] for check in checks)} have the hub's checksums")


def _run(step: Step) -> int:
    """The exit status of a command whose paths and variables may begin with ~/."""
    env, words = step
    expanded = {key: os.path.expanduser(value) for key, value in env.items()}  # noqa: PTH111
    return foreground([os.path.expanduser(word) for word in words], env={**os.environ, **expanded})  # noqa: PTH111
