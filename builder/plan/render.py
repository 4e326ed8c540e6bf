"""Renders a plan as one multi-stage Dockerfile: a stage for each layer, and a last stage for the image."""

from __future__ import annotations

from builder.model.plan import Plan
from builder.plan.template import Quoted, render_dockerfile
from builder.project import Project

HEADER = """\
# {recipe} on {base}: the image of `builder build`, as a Dockerfile.
# Its build context: builder render --recipe {recipe} --base {base} --context DIR
"""


def render(project: Project, plan: Plan) -> str:
    """The complete Dockerfile. Its last stage has the same files and configuration as the image of `builder build`;
    times and history are the engine's."""
    parts = [HEADER.format(recipe=plan.recipe, base=plan.base)]
    if plan.toolchains:
        parts.append(render_dockerfile(project.template("toolchain.Dockerfile.j2"), {}, "toolchain.Dockerfile.j2"))
    files = project.template("files.Dockerfile.j2")
    for layer in plan.layers:
        if layer.producer == "files":
            parts.append(render_dockerfile(files, {"id": Quoted(layer.id)}, "files.Dockerfile.j2"))
        elif layer.producer == "dockerfile":
            parts.append(layer.stages)
    env: dict[str, tuple[str, bool]] = {}
    for item in plan.env:
        before, inherits = env.get(item.name, ("", plan.base_image is not None))
        env[item.name] = (
            (f"{item.value}:{before}" if before else item.value, inherits) if item.prepend else (item.value, False)
        )
    values = {
        "base": Quoted(f"{plan.base_image}@{plan.base_manifest}") if plan.base_image else Quoted("scratch"),
        # COPY from the stage that unpacks: a stage in between would hold a second copy of all files.
        "layers": [
            (Quoted(layer.id), "/out/" if layer.producer == "files" else "/")
            for layer in plan.layers
            if layer.producer != "config"
        ],
        "env": [(name, value, inherits) for name, (value, inherits) in env.items()],
        "labels": list(plan.labels),
        "entrypoint": plan.entrypoint,
        "command": plan.command,
        "workdir": None if plan.base_image else "/",
    }
    parts.append(render_dockerfile(project.template("image.Dockerfile.j2"), values, "image.Dockerfile.j2"))
    return "\n".join(part.strip("\n") + "\n" for part in parts)
