"""The bundle: a whole plan as one canonical JSON document, from which anybody rebuilds without the project.

A bundle holds no trust: whatever is computed from its parts (keys, the check of Dockerfiles) is computed again when it
is read. Equal plans have equal bundles, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from builder.errors import BuilderError, InvalidError
from builder.jsontext import first_problem, parse_json
from builder.model.canonical import canonical
from builder.model.plan import Plan, PlannedLayer
from builder.model.reference import Reference
from builder.oci.format import MEDIA_TYPES
from builder.plan.keys import keyed
from builder.plan.locked import one_per_file
from builder.plan.resolve import ARCHITECTURES, MAX_LAYERS, PLATFORM
from builder.plan.spec import Spec
from builder.plan.stages import check_stages

MEDIA_TYPE = "application/vnd.builder.bundle.v1+json"
LIMIT = 4 << 20
_VALUES = 100_000
"""Bytes and values of a bundle. That of the largest shipped recipe has 0.35 MB and 12,000."""

_VERSION = 1
_NAME = 255
"""Bytes of a file's name."""


@cache
def _adapter() -> TypeAdapter[Plan]:
    return TypeAdapter(Plan)


def write_bundle(plan: Plan) -> bytes:
    """The bundle of a plan."""
    return canonical({"bundle": _VERSION, "plan": json.loads(_adapter().dump_json(plan))})


def read_bundle(bundle: bytes, where: str) -> Plan:
    """The plan in a bundle; `write_bundle` makes the same bytes of it. where: the file or reference, for messages.

    Raises InvalidError when it is not a bundle, a part of it is not valid, or its layers have other keys: then another
    version of `builder`, which lays out layers in another way, wrote it.
    """
    if len(bundle) > LIMIT:
        raise _refused(f"it has more than {LIMIT} bytes", where)
    try:
        document = parse_json(bundle, _VALUES)
    except ValueError as error:
        raise _refused(str(error), where) from None
    if not isinstance(document, dict) or document.keys() != {"bundle", "plan"}:
        raise _refused("it does not have exactly the members bundle and plan", where)
    if type(document["bundle"]) is not int or document["bundle"] != _VERSION:
        raise InvalidError(
            f"a bundle of version {ascii(document['bundle'])[:20]}",
            id="bundle-version-unknown",
            where=where,
            cause=f"this version of builder reads version {_VERSION}",
            next="update builder",
        )
    try:
        plan = _adapter().validate_json(canonical(document["plan"]))
    except ValidationError as error:
        raise _refused(first_problem(error), where) from None
    for problem in _problems(plan, where):
        raise _refused(problem, where)
    if write_bundle(plan) != bundle:
        # Two spellings of one plan would have two digests.
        raise _refused("it is not canonical JSON", where)
    return plan


def _refused(problem: str, where: str) -> InvalidError:
    return InvalidError(
        f"not a valid bundle: {problem}",
        id="bundle-invalid",
        where=where,
        next="write one: builder plan NAME --bundle FILE",
    )


def _problems(plan: Plan, where: str) -> Iterator[str]:
    """What the types do not say. Raises InvalidError itself for a Dockerfile that reads what is not locked."""
    yield from _image_problems(plan)
    for layer in (*plan.layers, *plan.toolchains):
        yield from _layer_problems(layer)
    try:
        if plan.base_image is not None:
            Reference.parse(_base(plan) or "")
        one_per_file(item for layer in (*plan.layers, *plan.toolchains) for item in layer.inputs)
    except BuilderError as error:
        yield error.what
    for layer in plan.layers:
        if layer.dockerfile is not None:
            base = _base(plan) if layer.reads_base else None
            check_stages(layer.dockerfile, base=base, where=f"{where}: layer {layer.id}", target=layer.id)
    computed = keyed(plan)
    every = (*computed.layers, *computed.toolchains)
    for layer, own in zip((*plan.layers, *plan.toolchains), every, strict=True):
        if layer.key != own.key:
            yield (
                f"layer {layer.id} has the key {own.key[:12]}, and the bundle says {layer.key[:12] or 'none'}: it was "
                "changed, or a version of builder wrote it that makes layers in another way"
            )


def _base(plan: Plan) -> str | None:
    return f"{plan.base_image}@{plan.base_manifest}" if plan.base_image is not None else None


def _image_problems(plan: Plan) -> Iterator[str]:
    if plan.platform != PLATFORM:
        yield f"platform is not {PLATFORM}"
    if plan.compression not in MEDIA_TYPES:
        yield f"there is no compression {plan.compression}"
    if len(plan.layers) > MAX_LAYERS:
        yield f"it has {len(plan.layers)} layers; at most {MAX_LAYERS} are allowed"
    expected = [(f"toolchain-{name}", "files") for name in ARCHITECTURES]
    found = sorted((layer.id, layer.producer) for layer in plan.toolchains)
    if found != expected and (found or any(layer.producer != "config" for layer in plan.layers)):
        yield f"its toolchains are not those for {' and '.join(ARCHITECTURES)}"
    every = (*plan.layers, *plan.toolchains)
    if len({layer.id for layer in every}) != len(every):
        yield "two layers have the same id"
    if (plan.base_image is None) != (plan.base_manifest is None):
        yield "its base has a name without a digest, or a digest without a name"


def _layer_problems(layer: PlannedLayer) -> Iterator[str]:
    """Problems of one layer by itself."""
    kinds = {"files": (True, False), "dockerfile": (False, True), "config": (False, False)}
    if (layer.spec is not None, layer.dockerfile is not None) != kinds[layer.producer]:
        yield f"layer {layer.id} does not hold what a {layer.producer} layer holds"
    if layer.root and (layer.spec is None or layer.spec.get("root") is not True):
        yield f"layer {layer.id} is a root, and is not made as one"
    if layer.producer == "config" and (layer.key or layer.inputs):
        yield f"layer {layer.id} has files, but is a config layer"
    if layer.producer != "dockerfile" and (layer.toolchain or layer.reads_base or layer.stages or layer.context):
        yield f"layer {layer.id} runs no commands, but says what they read"
    if layer.dockerfile is not None and not layer.dockerfile.endswith(layer.stages):
        yield f"the stages of layer {layer.id} are not the end of its Dockerfile"
    if wrong := next((path for path in layer.context if not path.startswith(f"layers/{layer.layer}/")), None):
        yield f"layer {layer.id} has the file {wrong} outside its folder"
    above = (path[:end] for path in layer.context for end, letter in enumerate(path) if letter == "/")
    if wrong := next((path for path in above if path in layer.context), None):
        yield f"layer {layer.id} has {wrong} as a file and as a folder"
    if wrong := next((path for path in layer.context if max(map(len, path.encode().split(b"/"))) > _NAME), None):
        yield f"layer {layer.id} has a file whose name is too long: {wrong[:100]}"
    if layer.spec is not None:
        yield from _spec_problems(layer, layer.spec)


def _spec_problems(layer: PlannedLayer, spec: dict[str, Any]) -> Iterator[str]:
    try:
        Spec.model_validate_json(canonical(spec))
    except ValidationError as error:
        yield f"layer {layer.id}: spec.{first_problem(error)}"
        return
    inputs = {(item.file, item.sha256) for item in layer.inputs}
    patches = [patch[kind] for patch in spec.get("patches", ()) for kind in ("wheel", "source")]
    for item in (*spec["debs"], *spec["wheels"], *patches):
        if (item["file"], item["sha256"]) not in inputs:
            yield f"{item['file']} of layer {layer.id} is not among its inputs"
