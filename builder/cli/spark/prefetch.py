"""`builder prefetch`: the downloads of a recipe's weights."""

from __future__ import annotations

import os
import shutil
from typing import Annotated

import typer

from builder.cli.options import JsonOption, ProfileOption, RecipeOption
from builder.cli.output import print_json, say
from builder.engine.process import foreground
from builder.errors import EngineError, UsageError
from builder.model.variant import with_profile
from builder.project import Project
from builder.serve import formats, spec


def prefetch(
    recipe: RecipeOption,
    profile: ProfileOption = None,
    exec_: Annotated[bool, typer.Option("--exec", help="Run the commands instead of printing them.")] = False,
    json_: JsonOption = False,
) -> None:
    """Print the commands that download a recipe's weights to the folders that `run` mounts."""
    if exec_ and json_:
        raise UsageError("--exec and --json exclude each other", id="prefetch-options-conflict")
    project = Project()
    served = with_profile(project.recipe(recipe), profile, project.shared_profiles)
    steps = spec.prefetch(served)
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


def _execute(steps: list[tuple[dict[str, str], tuple[str, ...]]]) -> None:
    if shutil.which("hf") is None:
        raise EngineError(
            "the command hf is not installed",
            id="hf-missing",
            next="pip install -U huggingface_hub, or print the commands without --exec",
        )
    for env, words in steps:
        expanded = {key: os.path.expanduser(value) for key, value in env.items()}  # noqa: PTH111
        command = [os.path.expanduser(word) for word in words]  # noqa: PTH111
        if foreground(command, env={**os.environ, **expanded}):
            raise EngineError(
                f"{' '.join(words)} failed",
                id="hf-failed",
                next="pip install -U huggingface_hub; hf auth login",
            )
