"""The parts of an image's configuration besides its layers: environment, labels, notes and creation date."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from builder.model.base import Base
from builder.model.plan import PlannedLayer, Variable
from builder.model.recipe import Recipe
from builder.model.variant import DEFAULT
from builder.project import Project

BASE_DIGEST = "org.opencontainers.image.base.digest"
"""The label that names the base; one of the annotations that the OCI image specification defines."""
PROFILE_LABEL = "org.builder.profile"
"""The label with the profile of the recipe, when it is not the default one."""
VLLM_LABEL = "org.builder.vllm.version"
"""The label with the version of vLLM in the image."""

_EPOCH = "2020-01-01T00:00:00Z"
"""The date of an image without locked inputs: the modification time of every file in a layer."""


def environment(base: Base, layers: Sequence[PlannedLayer], recipe: Recipe) -> tuple[Variable, ...]:
    """The variables in the order in which they apply: the base's, the layers', the recipe's."""
    variables: list[Variable] = []
    if base.path:
        variables.append(Variable("PATH", ":".join(base.path), origin=base.name))
    variables += [Variable(name, value, origin=base.name) for name, value in base.env.items()]
    for layer in layers:
        variables += layer.env
    variables += [Variable(name, value, origin=recipe.name) for name, value in recipe.env.items()]
    return tuple(variables)


def labels(
    recipe: Recipe, base: Base, layers: Sequence[PlannedLayer], created: str, profile: str | None
) -> tuple[tuple[str, str], ...]:
    """The image's labels, sorted by name. created: RFC 3339."""
    labels = {
        "org.opencontainers.image.title": recipe.name,
        "org.opencontainers.image.description": recipe.title,
        "org.opencontainers.image.created": created,
        "org.builder.recipe": recipe.name,
        "org.builder.base": base.name,
    }
    if profile is not None and profile != DEFAULT:
        labels[PROFILE_LABEL] = profile
    if base.vllm:
        labels[VLLM_LABEL] = base.vllm
    if base.pin is not None and base.pin.manifest is not None:
        labels["org.opencontainers.image.base.name"] = base.pin.image
        labels[BASE_DIGEST] = base.pin.index or base.pin.manifest
    for layer in layers:
        labels |= dict(layer.labels)
    return tuple(sorted(labels.items()))


def notes(layers: Sequence[PlannedLayer]) -> tuple[str, ...]:
    """Notes about the layers for users of the image."""
    notes = []
    for layer in layers:
        functions = layer.params.get("functions", "all")
        if layer.layer == "nccl" and functions != "all":
            notes.append(
                f"NCCL has only the functions {functions!r}; calling another one crashes. "
                "A full NCCL is one option away: --set nccl.functions=all"
            )
    return tuple(notes)


def created(project: Project, sections: Iterable[str]) -> str:
    """The newest date of the lock sections that the image uses; an update of another section does not change it."""
    return max([_EPOCH, *(project.section(name).locked for name in sections)])
