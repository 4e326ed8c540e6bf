"""Whether two plans are the same, and in what they differ. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from builder.model.plan import Plan, PlannedLayer
from builder.plan.bundle import write_bundle

_PARTS = ("layers", "toolchains", "env", "labels")
_LAYER_PARTS = ("inputs", "context", "key", "env", "labels", "params", "spec")


def plan_differences(bundle: Plan, project: Plan) -> list[str]:
    """In what a plan differs from that of a project, one line each, the bundle's value first; empty when equal."""
    if write_bundle(bundle) == write_bundle(project):
        return []
    found = [f"{name}: {_short(old)}, not {_short(new)}" for name, old, new in _changed(bundle, project, _PARTS)]
    found += _named("environment", {item.name: item for item in bundle.env}, {item.name: item for item in project.env})
    found += _named("label", dict(bundle.labels), dict(project.labels))
    found += _layers((*bundle.layers, *bundle.toolchains), (*project.layers, *project.toolchains))
    return found or ["the order of layers or variables"]


def _layers(bundle: Sequence[PlannedLayer], project: Sequence[PlannedLayer]) -> Iterator[str]:
    theirs, ours = ({layer.id: layer for layer in layers} for layers in (bundle, project))
    for name in dict.fromkeys((*theirs, *ours)):
        old, new = theirs.get(name), ours.get(name)
        if old is None or new is None:
            yield f"layer {name}: only in the plan of the {'project' if old is None else 'image'}"
        elif old != new:
            yield from (f"layer {name}: {line}" for line in _layer(old, new))


def _layer(old: PlannedLayer, new: PlannedLayer) -> Iterator[str]:
    lines = [
        *_named("input", *({item.file: item.sha256 for item in layer.inputs} for layer in (old, new))),
        *_named("file", old.context, new.context),
        *_named("parameter", old.params, new.params),
        *_named("environment", *({item.name: item for item in layer.env} for layer in (old, new))),
        *_named("label", dict(old.labels), dict(new.labels)),
        *(name for name, _, _ in _changed(old, new, _LAYER_PARTS)),
    ]
    if old.spec is not None and new.spec is not None and old.spec != new.spec:
        lines += _named("description", old.spec, new.spec)
    return iter(lines or ["its description"])


def _named(noun: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*old, *new}):
        if name not in old or name not in new:
            yield f"{noun} {_short(name)} only in the plan of the {'image' if name in old else 'project'}"
        elif old[name] != new[name]:
            yield f"{noun} {_short(name)}"


def _changed(old: Any, new: Any, without: Sequence[str]) -> Iterator[tuple[str, Any, Any]]:
    for item in fields(old):
        first, second = getattr(old, item.name), getattr(new, item.name)
        if item.name not in without and first != second:
            yield item.name, first, second


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return ascii(text[:80])[1:-1] or "nothing"
