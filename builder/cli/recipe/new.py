"""`builder new`: the beginning of a recipe or a layer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from builder.cli.options import say
from builder.errors import UsageError

NO_MODEL = "owner/model"

RECIPE = """\
name: {name}
title: {name} on one Spark
model:
  id: {model}
  # What the rules go by: nvfp4, mxfp4, fp8, int4 or bf16; modelopt, compressed-tensors or native.{guessed}
  weights: {weights}
  checkpoint: {checkpoint}
  moe: {moe}
base: {base}
layers: [nccl, ptxas, marlin, entrypoint]
serve:
  flags:
    served-model-name: {name}
    host: 0.0.0.0
    port: 8000{backend}
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
    model: Annotated[str, typer.Option("--model", help="Of a recipe: the model's repository.")] = NO_MODEL,
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
        if name in project.recipe_names() and not (Path("recipes") / f"{name}.yaml").exists():
            raise UsageError(
                f"there is a recipe {name} already, which comes with builder",
                next=f"builder new recipe MY-NAME --extends {name}",
            )
        path, text = Path("recipes") / f"{name}.yaml", VARIANT if extends else RECIPE
    elif kind == "layer":
        from builder.project import Project

        if name in Project().layer_names() and not (Path("dockerfiles/layers") / name).exists():
            raise UsageError(f"there is a layer {name} already, which comes with builder", next="another name")
        path, text = Path("dockerfiles/layers") / name / "layer.yaml", LAYER
    else:
        raise UsageError(f"cannot make a {kind!r}", cause="recipe or layer")
    if path.exists():
        raise UsageError(f"{path} is there already")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(name=name, base=base, extends=extends, **_model(model)), "utf-8")
    print(path)
    use = f"look through it; builder lint {name}; builder plan --recipe {name}; builder build --recipe {name}"
    say(f"next: {use}" if kind == "recipe" else f"next: name {name} under `layers` of a recipe, and plan that")


def _model(id: str) -> dict[str, str]:
    """What a recipe says of a model, as far as the model's name tells it."""
    from builder.knowledge.families import has_experts, weights_of

    if not re.fullmatch(r"[A-Za-z0-9._-]+/[A-Za-z0-9._-]+", id):
        raise UsageError(f"--model {id!r} is not OWNER/NAME", next="--model as its page on the hub is called")
    weights, moe = weights_of(id) or "bf16", has_experts(id)
    nvidia = id.startswith("nvidia/") and weights in ("nvfp4", "fp8")
    checkpoint = "modelopt" if nvidia else "compressed-tensors" if weights == "nvfp4" else "native"
    marlin = moe and weights in ("nvfp4", "mxfp4")
    return {
        "model": id,
        "weights": weights,
        "checkpoint": checkpoint,
        "moe": str(moe).lower(),
        "backend": "\n    moe-backend: marlin" if marlin else "",
        "guessed": "" if id == NO_MODEL else "\n  # Guessed from the name: compare with config.json of the model.",
    }
