"""The checks of a plan: those of base, layers and recipe, and those that follow from its environment and labels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from builder.digest import Digest
from builder.model.canonical import canonical
from builder.model.check import Check
from builder.model.plan import Plan
from builder.oci.assemble import BaseImage, config_of


def checks_of(plan: Plan) -> list[Check]:
    """All checks, each id once, in order. Checks of the command get the plan's command as arguments."""
    found: dict[str, Check] = {}
    for check in [*plan.checks, *_settings(plan)]:
        if check.kind == "entrypoint" and not check.args:
            args: dict[str, object] = {"command": list(plan.command)}
            if plan.entrypoint is not None:
                args["entrypoint"] = list(plan.entrypoint)
            check = check.model_copy(update={"args": args})
        if check.kind == "serve-command" and "argv" not in check.args:
            words = serve_words(plan)
            if words is None:
                continue
            variables = sorted({item.name for item in plan.env if item.name.startswith("VLLM_")})
            check = check.model_copy(update={"args": {**check.args, "argv": list(words), "variables": variables}})
        found.setdefault(check.id, check)
    return list(found.values())


def planned_check(plan: Plan, diff_ids: Mapping[str, Digest], base: BaseImage | None) -> Check:
    """The check that an image is the one of this plan, and not one that was derived from it.

    diff_ids: of the layers that the store has, by layer id. base: None for a hermetic plan, and when it is not known.
    """
    own = [diff_ids.get(layer.id) for layer in plan.layers if layer.producer != "config"]
    below = [Digest(item) for item in base.config["rootfs"]["diff_ids"]] if base is not None else []
    # By way of JSON: a document of the plan, without types of its own.
    args = {"config": json.loads(canonical(config_of(plan, [*below, *own], base)))}
    if plan.base_image is not None and base is None:
        args["base"] = f"{plan.base_image}@{plan.base_manifest}"
    return Check(id="image-planned", tier="static", kind="planned", args=args)


def serve_words(plan: Plan) -> tuple[str, ...] | None:
    """The words after `vllm serve` in the image's command; None when the entrypoint builds the command itself."""
    # With an entrypoint (`vllm serve` or its wrapper), the command has only these words.
    words = plan.command
    return (words[2:] if words[:2] == ("vllm", "serve") else words) or None


def _settings(plan: Plan) -> Iterator[Check]:
    declared: dict[str, JsonValue] = {layer.id: [*layer.replaces] for layer in plan.layers if layer.replaces}
    yield Check(
        id="nothing-covered", tier="static", kind="nothing-covered", args={"replaces": [], "declared": declared}
    )
    yield Check(id="image-unplanned", tier="static", kind="unplanned", args={"planned": True})
    if plan.glibc is not None and plan.base_image is not None:
        yield Check(id="image-symbol-versions", tier="static", kind="symbol-versions", args={"glibc": plan.glibc})
    if plan.base_image is not None:
        # Variables of a vendor's image are not checked.
        mine: list[JsonValue] = [*sorted({item.name for item in plan.env if item.name.startswith("VLLM_")})]
        yield Check(id="image-vllm-env", tier="static", kind="vllm-env", args={"names": mine})
    final = {item.name: item for item in plan.env}
    for item in final.values():
        args: dict[str, JsonValue] = {"name": item.name, "starts" if item.prepend else "value": item.value}
        yield Check(id=_id("env", item.name), tier="static", kind="env", args=args)
    for name, value in plan.labels:
        yield Check(id=_id("label", name), tier="static", kind="label", args={"name": name, "value": value})


def _id(kind: str, name: str) -> str:
    return f"{kind}-{name.lower().replace('_', '-')}"[:64]
