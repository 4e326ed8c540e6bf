"""Why a layer has its key, why it is in an image, what it needs and who needs it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from builder.digest import Digest
from builder.model.canonical import fingerprint
from builder.model.condition import Condition
from builder.model.layer import Layer
from builder.model.plan import Plan, PlannedLayer
from builder.oci.format import format_id
from builder.plan.diff import KINDS, Change, Fact, Kind, changed, toolchain_facts
from builder.plan.keys import toolchain_digest
from builder.project import Project
from builder.text import first_few
from builder.unpack import FORMAT

INPUT_KINDS: Mapping[str, Kind] = {"deb": "debian", "wheel": "python", "source": "source"}


@dataclass(frozen=True)
class Explanation:
    """About one layer of an image, each as short texts. origin: why it is there. users: recipes and bases of the
    project that have a layer of this folder."""

    origin: str
    needs: tuple[str, ...]
    needed_by: tuple[str, ...]
    users: tuple[str, ...]


def explain(project: Project, plan: Plan, layer: PlannedLayer) -> Explanation:
    """Explain a layer of a plan of this project. Raises BuilderError for a file of the project that is not valid."""
    base = project.base(plan.base)
    of_base = [each.id for each in plan.layers].index(layer.id) < len(base.layers)
    origin = f"recipes/bases/{plan.base}.yaml" if of_base else f"recipes/{plan.recipe}.yaml"
    definition = project.layer(layer.layer).definition
    present = {each.layer: project.layer(each.layer).definition for each in plan.layers}
    return Explanation(
        f"{origin} lists it",
        tuple(_needs(plan, layer, definition)),
        tuple(sorted(name for name, other in present.items() if layer.layer in required_layers(other))),
        tuple(_users(project, layer.layer)),
    )


def required_layers(definition: Layer) -> set[str]:
    """The layers that a layer needs in the same recipe."""
    found = set()
    for need in definition.needs:
        found |= {str(value) for value in _values(need.when, "recipe.layers")}
    return found


def _values(condition: Condition | None, subject: str) -> Iterator[object]:
    for tests in condition if isinstance(condition, list | tuple) else [condition or {}]:
        if subject in tests and not isinstance(tests[subject], dict):
            yield tests[subject]


def _needs(plan: Plan, layer: PlannedLayer, definition: Layer) -> Iterator[str]:
    for kind in ("deb", "wheel", "source"):
        names = [item.name for item in layer.inputs if item.kind == kind]
        if names:
            yield f"{len(names)} {INPUT_KINDS[kind]}: {first_few(names, 3)}"
    if layer.toolchain:
        yield f"the toolchain {toolchain_digest(plan.toolchains)[:12]}, on every build platform"
    if layer.reads_base:
        yield f"files of the base {plan.base_image}@{plan.base_manifest}"
    yield from (f"the layer {name}" for name in sorted(required_layers(definition)))
    yield from (f"/{path.lstrip('/')} of a lower layer, which it replaces" for path in layer.replaces)


def _users(project: Project, name: str) -> Iterator[str]:
    for recipe in map(project.recipe, project.recipe_names()):
        if any(use.layer == name for use in recipe.layers):
            yield recipe.name
    for base in project.bases.values():
        if any(use.layer == name for use in base.layers):
            yield f"{base.name} (base)"


def key_facts(plan: Plan, layer: PlannedLayer) -> dict[Kind, dict[str, Fact]]:
    """The parts of a layer's key, as `builder.plan.keys` hashes them, by kind and name."""
    facts: dict[Kind, dict[str, Fact]] = {kind: {} for kind in KINDS}
    for item in layer.inputs:
        facts[INPUT_KINDS[item.kind]][item.package] = Fact(item.version, item.sha256)
    for path, data in layer.context.items():
        facts["file"][path] = _hash(Digest.of(data).hex)
    spec = layer.spec or {}
    for item in spec.get("files", ()):
        facts["file"][item["path"]] = _hash(fingerprint(item))
    settings = {
        "blob format": fingerprint(format_id(plan.compression)),
        "platform": plan.platform,
        "producer": layer.producer,
        # The files of inputs are named above, with their hashes.
        "description": fingerprint([{**spec, "files": [], "debs": [], "wheels": []}, _places(layer), FORMAT]),
        "Dockerfile": fingerprint(layer.dockerfile),
        "base": str(plan.base_manifest) if layer.reads_base else "",
    }
    facts["setting"] = {name: Fact(text) if len(text) < 64 else _hash(text) for name, text in settings.items()}
    if layer.toolchain:
        facts["toolchain"] = toolchain_facts(plan.toolchains)
    return facts


def _places(layer: PlannedLayer) -> list[tuple[str, str]]:
    return [(str(item.get("strip")), str(item.get("into"))) for item in (layer.spec or {}).get("wheels", ())]


def _hash(text: str) -> Fact:
    return Fact(text.removeprefix("sha256:")[:12], text)


def key_changes(old: tuple[Plan, PlannedLayer], new: tuple[Plan, PlannedLayer]) -> list[Change]:
    """Which parts of a layer's key differ between two plans; empty when the keys are equal."""
    if old[1].key == new[1].key:
        return []
    before, after = key_facts(*old), key_facts(*new)
    found = [change for kind in KINDS for change in changed(kind, before[kind], after[kind])]
    # The order of equal inputs is part of a key as well.
    return found or [Change("setting", "order of inputs", old[1].key[:12], new[1].key[:12])]
