"""Recipe: an image for one model family, its serving command, and the profiles that change it."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue, model_validator

from builder.model.check import Check
from builder.model.common import (
    Boolean,
    EnvName,
    Flag,
    HostPath,
    ImagePath,
    Line,
    Name,
    NoSecrets,
    ParameterName,
    Scalar,
    Strict,
)
from builder.text import is_plain_line


class LayerUse(Strict):
    """A layer in a recipe or base. Written as a plain name, or as `name: {parameter: value}`."""

    layer: Name
    set: dict[ParameterName, Scalar | tuple[Line, ...]] = {}

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"layer": value}
        if isinstance(value, dict) and len(value) == 1 and not set(value) & {"layer"}:
            ((name, parameters),) = value.items()
            return {"layer": name, "set": parameters if parameters is not None else {}}
        return value


_MOST = 50
"""Bases and profiles of a recipe: each of one is looked at with each of the other."""

_ID = r"[A-Za-z0-9._][A-Za-z0-9._-]*/[A-Za-z0-9._-]+"
ModelId = Annotated[str, Field(pattern=rf"^{_ID}$")]
Download = Annotated[Line, Field(pattern=rf"^{_ID}(@[A-Za-z0-9._][A-Za-z0-9._/-]*)?(:[^-].*)?$")]
"""No part of it is an option of the hub's client."""
Revision = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
RuleId = Annotated[str, Field(pattern=r"^GB10-\d{3}$")]
Reason = Annotated[Line, Field(min_length=10)]


class Model(Strict):
    """The model an image serves.

    revision: the commit of the repository that is served and downloaded; without one, what its main branch is then.
    family: selects the rules about one model. weights: the number format of the weights. checkpoint: its origin:
    ModelOpt, compressed-tensors (llm-compressor), or native for the model's makers. hybrid: the kind of layers besides
    attention. tools: the recipe supports tool calls. mixed_precision: FP8 and NVFP4 in one checkpoint. memory_gb: of
    the weights on one node, when a document states it. kv_cache: the checkpoint stores scales of an FP8 KV cache.
    """

    id: ModelId
    revision: Revision | None = None
    family: Name | None = None
    parameters: Line | None = None
    quantization: Line | None = None
    weights: Literal["nvfp4", "mxfp4", "fp8", "int4", "bf16"] | None = None
    checkpoint: Literal["modelopt", "compressed-tensors", "native"] | None = None
    moe: Boolean = False
    hybrid: Literal["mamba", "gated-delta"] | None = None
    reasoning: Boolean = False
    tools: Boolean = False
    modalities: tuple[Line, ...] = ()
    mixed_precision: Boolean = False
    memory_gb: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] | None = None
    gated: Boolean = False
    kv_cache: Literal["fp8"] | None = None


def _visible(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    # JSON escapes line breaks and other C0 controls itself.
    if not is_plain_line(json.dumps(value, ensure_ascii=False)):
        raise ValueError("must not have control characters")
    return value


FlagValue = Scalar | None | Annotated[dict[str, JsonValue], AfterValidator(_visible)] | tuple[Scalar, ...]
_MOST_FLAGS = 200
"""Each is compared with all options of vLLM when it is unknown."""


class Serve(Strict):
    """The serving command: `vllm serve MODEL` and its options in order. Without `model`, the model's own name.

    A value true is a switch, a mapping is passed as JSON, a list repeats as further words of the one option, null
    leaves the option out (in a profile or variant: removes it). wrapper: a program of a layer that gets model and
    options in place of `vllm serve`, and runs `vllm serve` itself.
    """

    model: Line | None = None
    wrapper: ImagePath | None = None
    flags: Annotated[dict[Flag, FlagValue], Field(max_length=_MOST_FLAGS), NoSecrets] = {}


class Volume(Strict):
    """A directory or file of the host in the container."""

    host: HostPath
    container: ImagePath
    read_only: Boolean = False


class Run(Strict):
    """Options of `docker run`. `secrets` are names of variables, never values.

    network: two nodes always use the host's. memlock: no limit on locked memory, which RDMA needs. downloads: further
    models, or files of models, that serving needs, as ID, ID@REVISION or ID:FILE.
    """

    port: Annotated[int, Field(ge=1, le=65535)] = 8000
    shm_size: Annotated[str, Field(pattern=r"^\d+[mg]$")] | None = None
    env: Annotated[dict[EnvName, Line], NoSecrets] = {}
    secrets: tuple[EnvName, ...] = ()
    volumes: tuple[Volume, ...] = ()
    network: Literal["bridge", "host"] = "bridge"
    memlock: Boolean = False
    downloads: tuple[Download, ...] = ()


class Speed(Strict):
    """Rates that the source measured for one request, in tokens per second: of decoding, and of reading prompts.

    base: the one with which they were measured, when it is not the recipe's own.
    """

    tokens_per_second: Line
    prefill: Line | None = None
    base: Name | None = None
    source: Line


class Profile(Strict):
    """Another way to serve the same model: changes to the recipe, merged as by `extends`."""

    title: Line
    base: Name | None = None
    compatible: Annotated[tuple[Name, ...], Field(max_length=_MOST)] | None = None
    layers: tuple[LayerUse, ...] | None = None
    env: Annotated[dict[EnvName, Line | None], NoSecrets] = {}
    serve: Serve = Serve()
    run: Run = Run()
    model: dict[str, Any] = {}
    nodes: Literal[1, 2] | None = None
    memory_gb: Literal[64, 128] | None = None
    rules: dict[RuleId, Reason | None] = {}
    speed: Speed | None = None
    notes: tuple[Line, ...] = ()


class Recipe(Strict):
    """One image: a base, an ordered list of layers, the serving command.

    extends: the recipe that this one is a variant of; the keys of this one are merged over it. rules: rules of the
    hardware that this recipe breaks on purpose, each with the reason.
    """

    name: Name
    title: Line
    extends: Name | None = None
    model: Model
    base: Name
    compatible: Annotated[tuple[Name, ...], Field(max_length=_MOST)] = ()
    """Other bases that the recipe can be built on, by name, alias or family."""
    layers: tuple[LayerUse, ...] = ()
    env: Annotated[dict[EnvName, Line], NoSecrets] = {}
    serve: Serve
    run: Run = Run()
    nodes: Literal[1, 2] = 1
    memory_gb: Literal[64, 128] = 128
    """Memory of the smallest Spark that these settings are for."""
    profiles: Annotated[dict[Name, Profile], Field(max_length=_MOST)] = {}
    rules: dict[RuleId, Reason] = {}
    speed: Speed | None = None
    checks: tuple[Check, ...] = ()
    notes: tuple[Line, ...] = ()
    sources: tuple[Line, ...] = ()
