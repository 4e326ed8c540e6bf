"""`builder new`: templates of a recipe, a variant and a layer; a base for a version of vLLM."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from builder.atomic import write_file
from builder.cli.output import say
from builder.cli.recipe.new_base import new_base
from builder.cli.recipe.schema import with_schema, write_schema
from builder.errors import UsageError
from builder.knowledge.families import has_experts, weights_of
from builder.plan.use import RESERVED
from builder.project import Project

NO_MODEL = "owner/model"
BASE = "hermetic-0.23"

RECIPE = """\
name: {name}
title: {name} on one Spark
model:
  id: {model}
  # What the rules check: nvfp4, mxfp4, fp8, int4 or bf16; modelopt, compressed-tensors or native.{guessed}
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

COMPILED = {
    "layer.yaml": """\
name: {name}
title: A library made from source
producer: dockerfile
inputs: {{toolchain: true}}
checks:
  - {{id: {name}-file, tier: static, kind: file, args: {{path: /opt/{name}/lib{name}.so}}}}
  - {{id: {name}-elf, tier: static, kind: elf-machine, args: {{prefix: /opt/{name}}}}}
""",
    "Dockerfile.j2": """\
FROM toolchain AS {{{{ id }}}}-build
RUN --mount=type=bind,target=/context mkdir -p /out/opt/{name} \\
    && aarch64-linux-gnu-gcc -O2 -shared -fPIC -o /out/opt/{name}/lib{name}.so /context/layers/{name}/{name}.c

FROM scratch AS {{{{ id }}}}
COPY --from={{{{ id }}}}-build /out /
""",
    "{name}.c": """\
int answer(void) {{ return 42; }}
""",
}


_OPTIONS = {
    "recipe": ("model", "base"),
    "variant": ("base", "extends", "layer"),
    "layer": ("compiled",),
    "base": ("vllm",),
}
"""The options of each kind of file."""


def new(
    kind: Annotated[str, typer.Argument(help="What to write.")],
    name: Annotated[str, typer.Argument(help="Name of the new recipe, layer or base.")],
    model: Annotated[
        str | None, typer.Option("--model", help="For a recipe: repository of the model, OWNER/NAME on the hub.")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", help="For a recipe: its base; default: hermetic-0.23, or the extended recipe's."),
    ] = None,
    extends: Annotated[
        str | None, typer.Option("--extends", help="For a recipe: the recipe of which it is a variant.")
    ] = None,
    layer: Annotated[
        list[str] | None,
        typer.Option("--layer", help="For a variant: a layer besides those of the extended recipe. May be repeated."),
    ] = None,
    compiled: Annotated[
        bool, typer.Option("--compiled", help="For a layer: with a source in C and the steps that compile it.")
    ] = False,
    vllm: Annotated[str | None, typer.Option("--vllm", help="For a base: its version of vLLM, from 0.20.0 on.")] = None,
) -> None:
    """Write the start of a new recipe or layer, or a whole base, into the current folder, and print the paths.

    A base is hermetic: `builder new base hermetic-0.31 --vllm 0.31.0` resolves and locks all of its packages.
    """
    check_new_name(name, layer=kind == "layer")
    if kind == "recipe" and layer and not extends:
        raise UsageError("--layer belongs to a variant", id="new-layer-without-extends", next="add --extends RECIPE")
    given = {"model": model, "base": base, "extends": extends, "layer": layer, "compiled": compiled, "vllm": vllm}
    what = "variant" if kind == "recipe" and extends else kind
    unfit = [name for name, value in given.items() if value and name not in _OPTIONS.get(what, given)]
    if unfit:
        raise UsageError(f"--{unfit[0]} does not belong to a new {what}", id="new-option-unfit")
    if kind == "base":
        new_base(name, vllm)
        return
    if kind == "recipe":
        base = _one_base(base) if base else ("" if extends else BASE)
        path, text = _new_recipe(name, base, extends, layer or [])
        use = f"builder lint {name}; builder plan --recipe {name}; builder build --recipe {name}"
        hint = f"read and change the file; {use}"
    elif kind == "layer":
        path, text = _new_layer(name), COMPILED["layer.yaml"] if compiled else LAYER
        hint = f"add {name} to `layers` of a recipe, and plan that recipe"
    else:
        raise UsageError(f"cannot write a new {kind!r}", id="new-kind-unknown", cause="one of recipe, layer, base")
    if os.path.lexists(path):
        raise UsageError(f"{path} exists already", id="new-file-exists")
    text = text.format(name=name, base=base or BASE, extends=extends, **_model(model or NO_MODEL))
    write_file(path, with_schema(kind, Path(), path, text).encode())
    write_schema(kind, Path())
    print(path)
    for file, content in COMPILED.items() if compiled else ():
        beside = path.with_name(file.format(name=name))
        if beside != path:
            write_file(beside, content.format(name=name).encode())
            print(beside)
    say(f"next: {hint}")


def check_new_name(name: str, *, layer: bool = False) -> None:
    """Raises UsageError for a name that no recipe or layer can have."""
    if not re.fullmatch(r"[a-z][a-z0-9._-]{0,63}", name) or (layer and name in RESERVED):
        raise UsageError(
            f"{name!r} is not a valid name",
            id="name-invalid",
            cause="up to 64 lower-case letters, digits, dots, hyphens and underscores, a letter first; "
            f"a layer is not {', '.join(RESERVED)}",
        )


def _one_base(name: str) -> str:
    """The name of the base of this name or alias, or of the first base of this family. Raises UsageError."""
    project = Project()
    found = project.find_bases(name) or [project.base(name)]
    return found[0].name


def _new_recipe(name: str, base: str, extends: str | None, layers: list[str]) -> tuple[Path, str]:
    """The path and template of a recipe. Raises UsageError for a name that builder's own recipes use."""
    project = Project()
    variant = VARIANT + (f"base: {base}\ncompatible: []\n" if base else "")
    if extends:
        variant += _with_layers(project, extends, layers)
    path = Path("recipes") / f"{name}.yaml"
    if name in project.recipe_names() and not os.path.lexists(path):
        raise UsageError(
            f"builder has a recipe {name} already",
            id="new-recipe-bundled",
            next=f"builder new recipe MY-NAME --extends {name}",
        )
    return path, variant if extends else RECIPE


def _with_layers(project: Project, extends: str, more: list[str]) -> str:
    """The key `layers` of a variant with more layers, as a template; empty when it has none."""
    uses: list[Any] = [{use.layer: dict(use.set)} if use.set else use.layer for use in project.recipe(extends).layers]
    if not more:
        return ""
    taken = {use.layer for use in project.recipe(extends).layers}
    for name in more:
        project.layer(name)
        if name in taken:
            raise UsageError(f"{extends} has the layer {name} already", id="new-layer-twice", next="leave out --layer")
        taken.add(name)
    # The entrypoint is last by convention.
    at = len(uses) - (uses[-1:] == ["entrypoint"])
    text = yaml.safe_dump({"layers": [*uses[:at], *more, *uses[at:]]}, sort_keys=False, default_flow_style=None)
    return text.replace("{", "{{").replace("}", "}}")


def _new_layer(name: str) -> Path:
    """The path of a layer. Raises UsageError for a name that builder's own layers use."""
    folder = Path("dockerfiles/layers") / name
    if name in Project().layer_names() and not folder.exists():
        raise UsageError(f"builder has a layer {name} already", id="new-layer-bundled", next="choose another name")
    return folder / "layer.yaml"


def _model(id: str) -> dict[str, str]:
    """The facts about a model that its name shows: weights, checkpoint format, experts and the backend for them."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+/[A-Za-z0-9._-]+", id):
        raise UsageError(
            f"--model {id!r} is not OWNER/NAME", id="model-name-invalid", next="copy the name from the model's page"
        )
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
