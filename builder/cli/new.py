"""`builder new`: the beginning of a recipe or a layer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from builder.cli.options import say
from builder.errors import UsageError

RECIPE = """\
name: {name}
title: {name} on one Spark
model:
  id: {model}
  weights: bf16
base: {base}
layers: [nccl, ptxas, marlin, entrypoint]
serve:
  flags:
    served-model-name: {name}
    host: 0.0.0.0
    port: 8000
    gpu-memory-utilization: 0.85
    max-model-len: 32768
    max-num-seqs: 4
run:
  env: {{HF_HOME: /models}}
  secrets: [HF_TOKEN]
  volumes:
    - {{host: ~/vllm, container: /models}}
"""

VARIANT = """\
name: {name}
title: {name}
extends: {extends}
serve:
  flags: {{served-model-name: {name}}}
"""

LAYER = """\
name: {name}
title: What {name} puts in the image
producer: files
files:
  - {{path: /opt/{name}/README, content: "{name}\\n"}}
checks:
  - {{id: {name}-file, tier: static, kind: file, args: {{path: /opt/{name}/README}}}}
"""


def new(
    kind: Annotated[str, typer.Argument(help="recipe or layer.")],
    name: Annotated[str, typer.Argument(help="Its name.")],
    model: Annotated[str, typer.Option("--model", help="Of a recipe: the model's repository.")] = "owner/model",
    base: Annotated[str, typer.Option("--base", help="Of a recipe: the base.")] = "hermetic-0.23",
    extends: Annotated[str | None, typer.Option("--extends", help="Of a recipe: the one it is a variant of.")] = None,
) -> None:
    """Write a recipe or a layer to begin with, into this folder, and print its path."""
    if not re.fullmatch(r"[a-z][a-z0-9._-]{0,63}", name):
        raise UsageError(f"{name!r} is not usable as a name", cause="small letters, digits, dots, dashes, underscores")
    if kind == "recipe":
        from builder.project import Project

        project = Project()
        project.recipe(extends) if extends else project.base(base)
        path, text = Path("recipes") / f"{name}.yaml", VARIANT if extends else RECIPE
    elif kind == "layer":
        path, text = Path("dockerfiles/layers") / name / "layer.yaml", LAYER
    else:
        raise UsageError(f"cannot make a {kind!r}", cause="recipe or layer")
    if path.exists():
        raise UsageError(f"{path} is there already")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(name=name, model=model, base=base, extends=extends), "utf-8")
    print(path)
    use = f"builder lint {name}; builder plan --recipe {name}"
    say(f"next: {use}" if kind == "recipe" else f"next: name {name} under `layers` of a recipe")
