"""Plans between two plans: what changed from one to the other, and the plan with some of the changes. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from builder.model.inputs import Input
from builder.model.plan import Plan, PlannedLayer, Variable
from builder.plan.keys import keyed, toolchain_digest
from builder.plan.locked import one_per_file

T = TypeVar("T")
_FIELDS = {"deb": "debs", "wheel": "wheels"}
"""Kinds of packages: the field of a layer's description that lists them."""


@dataclass(frozen=True, order=True)
class Change:
    """One thing that two plans have differently, which can be changed by itself.

    kind: deb, wheel (by name, in all layers that unpack it), layer (the rest of it), variable (of the image), python
    (where wheels are installed), base, toolchain or command. section: the first layer that it is in, "" for none.
    old, new: versions, None when it is absent, "" where there is none.
    """

    kind: str
    name: str
    section: str = ""
    old: str | None = ""
    new: str | None = ""

    def __str__(self) -> str:
        name = f"{self.kind} {self.name}".rstrip()
        if self.old != self.new:
            return f"{name} {self.old or 'absent'} → {self.new or 'absent'}"
        return f"{name} {self.old} (another file or place)" if self.old else name


@dataclass(frozen=True)
class Place:
    """A package in a layer: its entry in the layer's description, and its input."""

    layer: str
    entry: Mapping[str, str]
    input: Input


Places = Mapping[tuple[str, str], Sequence[Place]]
"""By kind and name of the package."""


def changes(good: Plan, bad: Plan) -> tuple[Change, ...]:
    """The changes from one plan to the other, by section in the order of the layers. All of them make `bad`, but for
    its name, date, labels, notes and checks."""
    order = {name: number for number, name in enumerate(_order(good, bad))}
    found = [*_image_changes(good, bad), *_layer_changes(good, bad), *_package_changes(good, bad)]
    return tuple(sorted(found, key=lambda item: (order.get(item.section, -1), item)))


def hybrid(good: Plan, bad: Plan, made: Collection[Change]) -> Plan:
    """`good` with some of the changes to `bad`. Raises PinError when two layers need different files of one name."""

    def of(kind: str, name: str = "") -> Plan:
        return bad if (kind, name) in chosen else good

    chosen = {(item.kind, item.name) for item in made}
    places = {id(plan): _places(plan) for plan in (good, bad)}
    layers = []
    for name in _order(good, bad):
        layer = _layer(of("layer", name), name)
        if layer is None or layer.spec is not None:
            held = [
                (_FIELDS[kind], place)
                for kind, package in _merged(*(_packages_in(plan, name) for plan in (good, bad)))
                for place in places[id(of(kind, package))].get((kind, package), ())
                if place.layer == name
            ]
            if layer is None and held:
                # A layer of one plan only, without the files that it places itself.
                either = _layer(good, name) or _layer(bad, name)
                assert either is not None and either.spec is not None
                layer = replace(either, spec={**either.spec, "files": []}, replaces=())
            layer = _filled(layer, held, _scheme(of("python"))) if layer is not None else None
        if layer is not None:
            layers.append(layer)
    base, image = of("base"), of("command")
    return keyed(
        replace(
            good,
            base=base.base,
            family=base.family,
            base_image=base.base_image,
            base_manifest=base.base_manifest,
            base_index=base.base_index,
            glibc=base.glibc,
            layers=tuple(layers),
            toolchains=of("toolchain").toolchains,
            env=tuple(
                item
                for name in _merged(*(dict.fromkeys(item.name for item in plan.env) for plan in (good, bad)))
                for item in _variables(of("variable", name), name)
            ),
            entrypoint=image.entrypoint,
            command=image.command,
        )
    )


def _filled(layer: PlannedLayer, held: Sequence[tuple[str, Place]], scheme: Any) -> PlannedLayer | None:
    """The layer with these packages; None when it holds nothing."""
    assert layer.spec is not None
    spec = {**layer.spec, "debs": [], "wheels": []}
    if spec["scheme"] is not None:
        spec["scheme"] = scheme
    for field, place in held:
        spec[field].append(dict(place.entry))
    if not held and not spec["files"]:
        return None
    return replace(layer, spec=spec, inputs=one_per_file(place.input for _, place in held))


def _packages_in(plan: Plan, name: str) -> dict[tuple[str, str], None]:
    """The packages of a layer, in their order."""
    layer = _layer(plan, name)
    return dict.fromkeys(key for key, _ in _unpacked(layer)) if layer is not None else {}


def _merged(first: Iterable[T], second: Iterable[T]) -> list[T]:
    """Both sequences as one: what only the second has follows what it follows there."""
    order = list(first)
    last = -1
    for item in second:
        if item in order:
            last = order.index(item)
        else:
            last += 1
            order.insert(last, item)
    return order


def _image_changes(good: Plan, bad: Plan) -> Iterator[Change]:
    if (good.base_image, good.base_manifest) != (bad.base_image, bad.base_manifest):
        yield Change("base", "", "", good.base, bad.base)
    if toolchain_digest(good.toolchains) != toolchain_digest(bad.toolchains):
        yield Change("toolchain", "")
    if _scheme(good) != _scheme(bad):
        yield Change("python", "")
    if (good.entrypoint, good.command) != (bad.entrypoint, bad.command):
        yield Change("command", "")
    for name in sorted({item.name for item in (*good.env, *bad.env)}):
        if _values(good, name) != _values(bad, name):
            yield Change("variable", name)


def _layer_changes(good: Plan, bad: Plan) -> Iterator[Change]:
    for name in _order(good, bad):
        old, new = _layer(good, name), _layer(bad, name)
        if _shell(old) != _shell(new):
            yield Change("layer", name, name, None if old is None else "", None if new is None else "")


def _package_changes(good: Plan, bad: Plan) -> Iterator[Change]:
    before, after = _places(good), _places(bad)
    for kind, name in {**before, **after}:
        old, new = before.get((kind, name), ()), after.get((kind, name), ())
        if [(place.layer, place.entry) for place in old] != [(place.layer, place.entry) for place in new]:
            yield Change(kind, name, (new or old)[0].layer, _version(old), _version(new))


def _version(places: Sequence[Place]) -> str | None:
    return places[0].input.version if places else None


def packages(plan: Plan) -> Mapping[tuple[str, str], tuple[Input, ...]]:
    """The Debian packages and wheels that `files` layers unpack, by kind and name."""
    return {key: tuple(place.input for place in places) for key, places in _places(plan).items()}


def python_of(plan: Plan) -> str:
    """The Python version that wheels are installed for, for example 3.13; that of the vendors' bases when unknown."""
    found = re.search(r"/python(3\.\d+)/", (_scheme(plan) or {"site": ""})["site"])
    return found[1] if found else "3.12"


def _places(plan: Plan) -> Places:
    found: dict[tuple[str, str], list[Place]] = {}
    for layer in plan.layers:
        for key, place in _unpacked(layer):
            found.setdefault(key, []).append(place)
    return found


def _unpacked(layer: PlannedLayer) -> Iterator[tuple[tuple[str, str], Place]]:
    inputs = {(item.file, item.sha256): item for item in layer.inputs}
    for kind, field in _FIELDS.items():
        for entry in (layer.spec or {}).get(field, ()):
            item = inputs[entry["file"], entry["sha256"]]
            yield (kind, item.package), Place(layer.id, entry, item)


def _shell(layer: PlannedLayer | None) -> Any:
    """What makes the files of a layer, without packages and Python's folders. None for none."""
    if layer is None or layer.spec is None:
        parts = layer and (layer.dockerfile, layer.context, [(item.file, item.sha256) for item in layer.inputs])
        return parts if layer is not None and layer.producer != "config" else None
    spec = {name: value for name, value in layer.spec.items() if name not in ("debs", "wheels", "scheme")}
    return spec if spec["files"] or spec["root"] or spec["shared"] else None


def _order(good: Plan, bad: Plan) -> list[str]:
    return _merged((layer.id for layer in good.layers), (layer.id for layer in bad.layers))


def _layer(plan: Plan, name: str) -> PlannedLayer | None:
    return next((layer for layer in plan.layers if layer.id == name), None)


def _scheme(plan: Plan) -> Any:
    return next((layer.spec["scheme"] for layer in plan.layers if layer.spec and layer.spec["scheme"]), None)


def _variables(plan: Plan, name: str) -> list[Variable]:
    return [item for item in plan.env if item.name == name]


def _values(plan: Plan, name: str) -> list[tuple[str, bool]]:
    return [(item.value, item.prepend) for item in _variables(plan, name)]
