"""Recipe + base + lock → plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from builder.errors import PinError, UsageError
from builder.model.base import Base
from builder.model.plan import Plan, PlannedLayer, Variable
from builder.model.recipe import LayerUse, Recipe
from builder.model.variant import DEFAULT, with_profile
from builder.plan.command import serving
from builder.plan.keys import toolchain_digest, with_key
from builder.plan.layers import Use, make_use, one_per_file, plan_layer
from builder.plan.stages import check_stages
from builder.plan.template import render_dockerfile
from builder.project import Project

PLATFORM = "linux/arm64"
ARCHITECTURES = ("amd64", "arm64")
MAX_LAYERS = 40
_EPOCH = "2020-01-01T00:00:00Z"

Sets = Mapping[str, Mapping[str, str]]
"""layer → parameter → text, from `--set layer.parameter=value`."""


def parse_sets(items: Iterable[str]) -> dict[str, dict[str, str]]:
    """`--set` arguments. Raises UsageError."""
    sets: dict[str, dict[str, str]] = {}
    for item in items:
        target, equals, value = item.partition("=")
        layer, dot, parameter = target.partition(".")
        if not (equals and dot and layer and parameter):
            raise UsageError(
                f"--set {item!r} is not LAYER.PARAMETER=VALUE", next="for example --set nccl.functions=inference"
            )
        sets.setdefault(layer, {})[parameter] = value
    return sets


def bases_of(project: Project, recipe: Recipe) -> list[Base]:
    """The bases that a recipe can be built on, its own one first."""
    candidates: list[Base] = []
    named = set(project.base_names())
    for name in (recipe.base, *recipe.compatible):
        # Reading one file by its name is quick; only an alias or a family needs a look at all of them.
        every = [project.base(name)] if name in named else project.bases.values()
        candidates += [base for base in every if name in (base.name, base.family, *base.aliases)]
    return candidates


def fitting_bases(project: Project, recipe: Recipe) -> list[Base]:
    """One base for each name that a recipe gives, its own first: an alias or a family stands for the first it fits."""
    found: dict[str, Base] = {}
    for name in (recipe.base, *recipe.compatible):
        try:
            base = select_base(project, recipe, name)
        except UsageError:
            continue
        found.setdefault(base.name, base)
    return list(found.values())


def uses_of(project: Project, base: Base, recipe: Recipe, sets: dict[str, dict[str, str]]) -> list[Use]:
    """The layers of an image, the base's own first. sets: is emptied of what they take from it."""
    taken: set[str] = set()
    own = _uses(project, base.layers, {}, taken, f"recipes/bases/{base.name}.yaml")
    return [*own, *_uses(project, recipe.layers, sets, taken, f"recipes/{recipe.name}.yaml")]


def select_base(project: Project, recipe: Recipe, wanted: str | None) -> Base:
    """The base to build on: the recipe's own, or the one of its compatible ones that `wanted` names.

    wanted: a base's name, one of its aliases, or a family. Raises UsageError.
    """
    if wanted is None:
        return project.base(recipe.base)
    candidates = bases_of(project, recipe)
    for match in (
        [base for base in candidates if base.name == wanted],
        [base for base in candidates if wanted in base.aliases],
        [base for base in candidates if base.family == wanted],
    ):
        if match:
            return match[0]
    if not project.bases_called(wanted):
        raise UsageError(f"there is no base {wanted!r}", next="builder list bases")
    fitting = ", ".join(dict.fromkeys(base.name for base in candidates))
    raise UsageError(
        f"recipe {recipe.name} does not run on base {wanted!r}",
        cause=f"it runs on {fitting}",
        next=f"to try it all the same: builder new recipe NAME --extends {recipe.name}, and say `base: {wanted}` there",
    )


def pinned(project: Project, recipe: Recipe, base: Base) -> Base:
    """The base itself. Raises PinError when its image is not pinned, which names another base of the recipe that is."""
    if base.pin is not None and base.pin.manifest is None:
        others = (item.name for item in fitting_bases(project, recipe) if item.pin is None or item.pin.manifest)
        other = next(others, None)
        raise PinError(
            f"base {base.name} is not pinned",
            where=f"recipes/bases/{base.name}.yaml",
            cause="no digest of its linux/arm64 image is known",
            next=f"builder lock --update {base.name}, where its registry can be reached"
            + (f"; or --base {other}" if other else ""),
        )
    return base


def resolve(
    project: Project,
    recipe: Recipe,
    *,
    base: str | None = None,
    sets: Sets | None = None,
    platform: str = PLATFORM,
    compression: str = "zstd",
    profile: str | None = None,
) -> Plan:
    """The plan for one image. Reads recipes, layers and locks through `project`; executes nothing.

    Raises UsageError, InvalidError or PinError.
    """
    if platform != PLATFORM:
        raise UsageError(f"platform {platform!r} is not supported", cause=f"a DGX Spark is {PLATFORM}")
    recipe = with_profile(recipe, profile, project.shared_profiles)
    asked = {layer: dict(values) for layer, values in (sets or {}).items()}
    chosen = pinned(project, recipe, select_base(project, recipe, base))
    uses = uses_of(project, chosen, recipe, asked)
    if asked:
        raise UsageError(
            f"--set names layer {next(iter(asked))!r}, which recipe {recipe.name} does not have",
            cause=f"its layers: {', '.join(dict.fromkeys(use.layer for use in recipe.layers)) or 'none'}",
        )
    if len(uses) > MAX_LAYERS:
        raise UsageError(f"{len(uses)} layers; at most {MAX_LAYERS} are allowed", where=f"recipes/{recipe.name}.yaml")
    planned = [plan_layer(project, use, chosen, recipe, uses) for use in uses]
    toolchains = plan_toolchains(project)
    manifest = chosen.pin.manifest if chosen.pin else None
    layers = finish(project, planned, toolchains, platform=platform, compression=compression, base=chosen)
    has_entrypoint = any(layer.layer == "entrypoint" for layer in layers)
    own = ("vllm", "serve") if chosen.layers else None
    entrypoint, command = serving(recipe, chosen) if has_entrypoint else (own, ())
    compiles = any(layer.toolchain for layer in layers)
    one_per_file(item for layer in (*layers, *(toolchains if compiles else ())) for item in layer.inputs)
    created = _created(project, [*layers, *(toolchains if compiles else ())])
    return Plan(
        recipe=recipe.name,
        title=recipe.title,
        base=chosen.name,
        family=chosen.family,
        platform=platform,
        base_image=chosen.pin.image if chosen.pin else None,
        base_manifest=manifest,
        base_index=chosen.pin.index if chosen.pin else None,
        created=created,
        compression=compression,
        layers=layers,
        toolchains=toolchains,
        env=_environment(chosen, layers, recipe),
        entrypoint=entrypoint,
        command=command,
        labels=_labels(recipe, chosen, layers, created, profile),
        checks=(*chosen.checks, *(check for layer in layers for check in layer.checks), *recipe.checks),
        notes=_notes(layers),
        compatible=recipe.compatible,
        glibc=chosen.glibc,
    )


def plan_toolchains(project: Project) -> tuple[PlannedLayer, ...]:
    """The toolchain roots, one for each build platform, with their keys."""
    planned = []
    for architecture in ARCHITECTURES:
        use = make_use(project, "toolchain", {"arch": architecture}, set(), "toolchain")
        use = replace(use, id=f"toolchain-{architecture}")
        layer = plan_layer(project, use, None, None, [])
        planned.append(
            with_key(layer, platform=f"linux/{architecture}", compression="none", toolchain=None, base_manifest=None)
        )
    return tuple(planned)


def finish(
    project: Project,
    planned: Sequence[PlannedLayer],
    toolchains: Sequence[PlannedLayer],
    *,
    platform: str,
    compression: str,
    base: Base,
) -> tuple[PlannedLayer, ...]:
    """Layers with their whole Dockerfiles and keys. Raises InvalidError for one that reads what is not locked."""
    manifest = base.pin.manifest if base.pin else None
    image = f"{base.pin.image}@{manifest}" if base.pin else None
    digest = toolchain_digest(toolchains)
    prologue = render_dockerfile(project.template("toolchain.Dockerfile.j2"), {}, "toolchain.Dockerfile.j2")
    done = []
    for layer in planned:
        if layer.producer == "dockerfile":
            text = f"{prologue}\n{layer.stages}" if layer.toolchain else layer.stages
            template = project.layer(layer.layer).folder / "Dockerfile.j2"
            check_stages(text, base=image if layer.reads_base else None, where=str(template))
            layer = replace(layer, dockerfile=text)
        done.append(
            with_key(layer, platform=platform, compression=compression, toolchain=digest, base_manifest=manifest)
        )
    return tuple(done)


def _uses(
    project: Project, wanted: Sequence[LayerUse], sets: dict[str, dict[str, str]], taken: set[str], where: str
) -> list[Use]:
    uses = []
    for use in wanted:
        given: dict[str, Any] = {**use.set, **sets.pop(use.layer, {})}
        uses.append(make_use(project, use.layer, given, taken, where))
    return uses


def _environment(base: Base, layers: Sequence[PlannedLayer], recipe: Recipe) -> tuple[Variable, ...]:
    made: list[Variable] = []
    if base.path:
        made.append(Variable("PATH", ":".join(base.path), origin=base.name))
    made += [Variable(name, value, origin=base.name) for name, value in base.env.items()]
    for layer in layers:
        made += layer.env
    made += [Variable(name, value, origin=recipe.name) for name, value in recipe.env.items()]
    return tuple(made)


def _labels(
    recipe: Recipe, base: Base, layers: Sequence[PlannedLayer], created: str, profile: str | None
) -> tuple[tuple[str, str], ...]:
    labels = {
        "org.opencontainers.image.title": recipe.name,
        "org.opencontainers.image.description": recipe.title,
        "org.opencontainers.image.created": created,
        "org.builder.recipe": recipe.name,
        "org.builder.base": base.name,
    }
    if profile is not None and profile != DEFAULT:
        labels["org.builder.profile"] = profile
    if base.vllm:
        labels["org.builder.vllm.version"] = base.vllm
    if base.pin is not None and base.pin.manifest is not None:
        labels["org.opencontainers.image.base.name"] = base.pin.image
        labels["org.opencontainers.image.base.digest"] = base.pin.index or base.pin.manifest
    for layer in layers:
        labels |= dict(layer.labels)
    return tuple(sorted(labels.items()))


def _notes(layers: Sequence[PlannedLayer]) -> tuple[str, ...]:
    notes = []
    for layer in layers:
        functions = layer.params.get("functions", "all")
        if layer.layer == "nccl" and functions != "all":
            notes.append(
                f"NCCL has only the functions {functions!r}; calling another one crashes. "
                "A full NCCL is one option away: --set nccl.functions=all"
            )
    return tuple(notes)


def _created(project: Project, layers: Sequence[PlannedLayer]) -> str:
    """The newest date of the lock sections that the image uses: an update of another section does not change it.

    Raises PinError when an input is in none of them.
    """
    used = {(item.sha256, item.size): item.file for layer in layers for item in layer.inputs}
    strays = dict(used)
    dates = [_EPOCH]
    for name in project.section_names():
        section = project.section(name)
        items = (
            section.wheels
            if section.kind == "wheels"
            else section.packages
            if section.kind == "debs"
            else section.sources
        )
        found = {(item.sha256, item.size) for item in items} & used.keys()
        if found:
            dates.append(section.locked)
        strays = {key: file for key, file in strays.items() if key not in found}
    if strays:
        raise PinError(f"{next(iter(strays.values()))} is in no section of the lock", where="recipes/locks")
    return max(dates)
