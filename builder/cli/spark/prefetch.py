"""`builder prefetch`."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Annotated

import typer

from builder.cli.options import JsonOption, ProfileOption, RecipeOption, print_json, say
from builder.errors import EngineError, UsageError


def prefetch(
    recipe: RecipeOption,
    profile: ProfileOption = None,
    exec_: Annotated[bool, typer.Option("--exec", help="Run the commands instead of printing them.")] = False,
    json_: JsonOption = False,
) -> None:
    """Print the commands that download a recipe's weights to where `run` mounts them."""
    from builder.model.variant import with_profile
    from builder.project import Project
    from builder.serve import formats, spec

    if exec_ and json_:
        raise UsageError("--exec runs the commands and --json prints them: choose one")
    project = Project()
    served = with_profile(project.recipe(recipe), profile, project.shared_profiles)
    steps = spec.prefetch(served)
    if exec_ and shutil.which("hf") is None:
        raise EngineError(
            "the command hf is not installed",
            next="pip install -U huggingface_hub; without --exec the steps are printed",
        )
    if json_:
        print_json([{"env": env, "argv": list(words)} for env, words in steps])
    for env, words in steps:
        if exec_:
            home = os.path.expanduser
            own = {**os.environ, **{key: home(value) for key, value in env.items()}}
            if subprocess.run([home(word) for word in words], env=own, check=False).returncode:
                raise EngineError(f"{' '.join(words)} failed", next="pip install -U huggingface_hub; hf auth login")
        elif not json_:
            prefix = "".join(f"{key}={formats.shell(value)} " for key, value in env.items())
            print(prefix + " ".join(formats.shell(word) for word in words))
    if served.model.gated:
        say("this model is gated: accept its licence on its page, and set HF_TOKEN")
