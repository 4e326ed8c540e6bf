"""The parts of an image's configuration besides its layers: environment, labels, notes and creation date."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from builder.model.base import Base
from builder.model.plan import PlannedLayer, Variable
from builder.model.recipe import Recipe
from builder.model.variant import DEFAULT

BASE_DIGEST = "org.opencontainers.image.base.digest"
"""The label that names the base; one of the annotations that the OCI image specification defines."""
RECIPE_LABEL, BASE_LABEL = "org.builder.recipe", "org.builder.base"
"""The labels with the names of the recipe and of the base."""
PROFILE_LABEL = "org.builder.profile"
"""The label with the profile of the recipe, when it is not the default one."""
VLLM_LABEL = "org.builder.vllm.version"
"""The label with the version of vLLM in the image."""

JOBS = "MAX_JOBS"
"""The variable that limits the compilers of FlashInfer, torch and vLLM; FlashInfer's nvcc has one thread each."""
_GB_PER_JOB, _CORES, _SHARE = 6, 20, 0.9
"""Memory that is counted for one nvcc; the cores of a Spark; vLLM's share when a recipe states none."""

_EPOCH = "2020-01-01T00:00:00Z"
"""The date of an image without locked inputs: the modification time of every file in a layer."""


def environment(base: Base, layers: Sequence[PlannedLayer], recipe: Recipe) -> tuple[Variable, ...]:
    """The variables in the order in which they apply: the base's, the layers', the recipe's."""
    variables: list[Variable] = []
    if base.path:
        variables.append(Variable("PATH", ":".join(base.path), origin=base.name))
    variables += [Variable(name, value, origin=base.name) for name, value in base.env.items()]
    if _has_nvcc(base, layers):
        variables.append(Variable(JOBS, str(compile_jobs(recipe)), origin=recipe.name))
    for layer in layers:
        variables += layer.env
    variables += [Variable(name, value, origin=recipe.name) for name, value in recipe.env.items()]
    return tuple(variables)


def _has_nvcc(base: Base, layers: Sequence[PlannedLayer]) -> bool:
    """Whether the image has a CUDA compiler: the vendors' images have one, a hermetic base has the layer `cuda`."""
    return base.family != "hermetic" or any(layer.layer == "cuda" for layer in layers)


def compile_jobs(recipe: Recipe) -> int:
    """How many nvcc may run at once in the image: kernels are compiled at the first start, beside the loaded model.

    vLLM takes its share of the memory; what it leaves is for the host and the compilers. One nvcc takes 3 to 8 GB for
    FlashInfer's files (flashinfer issue 3634), and not all peak at once: 6 GB are counted for each. Without a limit,
    ninja starts one for each of the 20 cores.
    """
    share = recipe.serve.flags.get("gpu-memory-utilization")
    left = (1 - min(1, max(0, share if isinstance(share, int | float) else _SHARE))) * recipe.memory_gb
    return min(_CORES, max(1, int(round(left, 3) // _GB_PER_JOB)))


def labels(
    recipe: Recipe,
    base: Base,
    layers: Sequence[PlannedLayer],
    created: str,
    profile: str | None,
    of_project: Mapping[str, str],
) -> tuple[tuple[str, str], ...]:
    """The image's labels, sorted by name. created: RFC 3339. of_project: those that all images of the project have."""
    labels = {
        **of_project,
        "org.opencontainers.image.title": recipe.name,
        "org.opencontainers.image.description": recipe.title,
        "org.opencontainers.image.created": created,
        RECIPE_LABEL: recipe.name,
        BASE_LABEL: base.name,
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


def created(dates: Iterable[str]) -> str:
    """The newest date of the lock sections that the image uses; an update of another section does not change it."""
    return max([_EPOCH, *dates])
