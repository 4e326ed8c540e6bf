"""Resolves recipe, base and lock into a plan: the order of the layers, their keys, the image's configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from builder.errors import InvalidError, UsageError
from builder.model.base import Base
from builder.model.canonical import canonical
from builder.model.check import Check
from builder.model.plan import Plan, PlannedLayer
from builder.model.recipe import LayerUse, Recipe
from builder.model.textfile import place_of
from builder.model.variant import with_profile
from builder.plan.bases import check_pinned, recipe_files, select_base
from builder.plan.command import serving
from builder.plan.imageconfig import created, environment, labels, notes
from builder.plan.keys import toolchain_digest, with_key, with_toolchain_key
from builder.plan.layers import plan_layer
from builder.plan.locked import dates_of, one_per_file
from builder.plan.stages import check_stages
from builder.plan.template import render_dockerfile
from builder.plan.use import Scope, Use, check_given, check_written, make_use
from builder.project import Project
from builder.text import closest

PLATFORM = "linux/arm64"
ARCHITECTURES = ("amd64", "arm64")
MAX_LAYERS = 40

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
                f"--set {item!r} is not LAYER.PARAMETER=VALUE",
                id="set-malformed",
                next="for example --set nccl.functions=inference",
            )
        sets.setdefault(layer, {})[parameter] = value
    return sets


def uses_of(project: Project, base: Base, recipe: Recipe, sets: dict[str, dict[str, str]]) -> list[Use]:
    """The layers of an image, the base's own first. sets: the parameters that the layers take are removed from it."""
    where, files = f"recipes/bases/{base.name}.yaml", lambda: [project.base_path(base.name)]
    own = project.once("uses", base.name, lambda name: _uses(project, base.layers, {}, set(), where, files))
    taken = {use.id for use in own}
    where = f"recipes/{recipe.name}.yaml"
    return [*own, *_uses(project, recipe.layers, sets, taken, where, lambda: recipe_files(project, recipe))]


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
    """The plan of one image. Reads recipes, layers and locks through `project` and runs nothing.

    Raises UsageError, InvalidError or PinError.
    """
    if platform != PLATFORM:
        raise UsageError(
            f"platform {platform!r} is not supported",
            id="platform-unsupported",
            next=f"--platform {PLATFORM}: a DGX Spark",
        )
    recipe = with_profile(recipe, profile, project.shared_profiles)
    parameters = {layer: dict(values) for layer, values in (sets or {}).items()}
    chosen = select_base(project, recipe, base)
    check_pinned(project, recipe, chosen)
    uses = uses_of(project, chosen, recipe, parameters)
    if parameters:
        raise UsageError(
            f"--set names layer {next(iter(parameters))!r}, which recipe {recipe.name} does not have",
            id="set-layer-unknown",
            cause=f"its layers: {', '.join(dict.fromkeys(use.layer for use in recipe.layers)) or 'none'}",
            next=f"builder show {recipe.name}",
        )
    if len(uses) > MAX_LAYERS:
        raise UsageError(
            f"{len(uses)} layers; at most {MAX_LAYERS} are allowed",
            id="layers-too-many",
            where=f"recipes/{recipe.name}.yaml",
        )
    # Many recipes have the same layers.
    same = [[use.source.definition.name, use.id, use.params] for use in uses]
    layers, date = project.once(
        "image",
        canonical([chosen.name, compression, same]),
        lambda key: _layers(project, chosen, recipe, uses, compression),
    )
    has_entrypoint = any(layer.layer == "entrypoint" for layer in layers)
    own = ("vllm", "serve") if chosen.layers else None
    entrypoint, command = serving(recipe, chosen) if has_entrypoint else (own, ())
    return Plan(
        recipe=recipe.name,
        title=recipe.title,
        base=chosen.name,
        family=chosen.family,
        platform=platform,
        base_image=chosen.pin.image if chosen.pin else None,
        base_manifest=chosen.pin.manifest if chosen.pin else None,
        base_index=chosen.pin.index if chosen.pin else None,
        created=date,
        compression=compression,
        layers=layers,
        # Their description is 20 times the rest of a plan that makes no layer.
        toolchains=plan_toolchains(project) if any(layer.producer != "config" for layer in layers) else (),
        env=environment(chosen, layers, recipe),
        entrypoint=entrypoint,
        command=command,
        labels=labels(recipe, chosen, layers, date, profile, project.choices.labels()),
        checks=_checks(chosen, layers, recipe),
        notes=notes(layers),
        compatible=recipe.compatible,
        glibc=chosen.glibc,
    )


def _checks(base: Base, layers: Sequence[PlannedLayer], recipe: Recipe) -> tuple[Check, ...]:
    """All checks: those of a layer replace those of the base with the same id, and those of the recipe replace both.

    Raises InvalidError for different checks of two layers with one id: a tier runs each id once.
    """
    found: dict[str, Check] = {}
    for layer in layers:
        for check in layer.checks:
            if found.setdefault(check.id, check) != check:
                raise InvalidError(
                    f"layer {layer.id} and a layer before it have different checks with the id {check.id!r}",
                    id="check-id-twice",
                    where=f"recipes/{recipe.name}.yaml",
                    next="give one of the two checks another id",
                )
    below, above = ({check.id: check for check in checks} for checks in (base.checks, recipe.checks))
    return tuple({**below, **found, **above}.values())


def _layers(
    project: Project, base: Base, recipe: Recipe, uses: Sequence[Use], compression: str
) -> tuple[tuple[PlannedLayer, ...], str]:
    """The layers of an image with their keys, and its date: what depends on nothing of the recipe but its layers."""
    planned = [plan_layer(project, use, base, recipe, uses) for use in uses]
    toolchains = plan_toolchains(project)
    layers = with_keys(project, planned, toolchains, platform=PLATFORM, compression=compression, base=base)
    compiles = any(layer.toolchain for layer in layers)
    one_per_file(item for layer in (*layers, *(toolchains if compiles else ())) for item in layer.inputs)
    used = {date for use in uses for date in dates_of(project, use, Scope(project, use, base, recipe))}
    if compiles:
        toolchain = _toolchain_uses(project)
        used |= {date for use in toolchain for date in dates_of(project, use, Scope(project, use, None, None))}
    return layers, created(used)


@lru_cache(maxsize=2)
def plan_toolchains(project: Project) -> tuple[PlannedLayer, ...]:
    """The toolchain roots, one for each build platform, with their keys."""
    uses = _toolchain_uses(project)
    return tuple(with_toolchain_key(plan_layer(project, use, None, None, [])) for use in uses)


def _toolchain_uses(project: Project) -> list[Use]:
    uses = ((name, make_use(project, "toolchain", {"arch": name}, set(), "toolchain")) for name in ARCHITECTURES)
    return [replace(use, id=f"toolchain-{name}") for name, use in uses]


def with_keys(
    project: Project,
    planned: Sequence[PlannedLayer],
    toolchains: Sequence[PlannedLayer],
    *,
    platform: str,
    compression: str,
    base: Base,
) -> tuple[PlannedLayer, ...]:
    """The layers with their complete Dockerfiles and keys.

    Raises InvalidError for a Dockerfile that reads anything that is not locked.
    """
    manifest = base.pin.manifest if base.pin else None
    image = f"{base.pin.image}@{manifest}" if base.pin else None
    digest = toolchain_digest(toolchains)
    prologue = render_dockerfile(project.template("toolchain.Dockerfile.j2"), {}, "toolchain.Dockerfile.j2")
    keyed = []
    for layer in planned:
        if layer.producer == "dockerfile":
            text = f"{prologue}\n{layer.stages}" if layer.toolchain else layer.stages
            template = project.layer(layer.layer).folder / "Dockerfile.j2"
            check_stages(text, base=image if layer.reads_base else None, where=str(template), target=layer.id)
            layer = replace(layer, dockerfile=text)
        keyed.append(
            with_key(layer, platform=platform, compression=compression, toolchain=digest, base_manifest=manifest)
        )
    return tuple(keyed)


def _uses(
    project: Project,
    wanted: Sequence[LayerUse],
    sets: dict[str, dict[str, str]],
    taken: set[str],
    where: str,
    files: Callable[[], list[Path]],
) -> list[Use]:
    """The uses of layers that a recipe or base wants. files: those that name the layers, for messages."""
    uses = []
    known = project.layer_names()
    for use in wanted:
        if use.layer not in known:
            raise InvalidError(
                f"there is no layer {use.layer!r}",
                id="layer-unknown",
                where=place_of(files(), use.layer),
                cause=closest(use.layer, known),
                next="builder list layers",
            )
        layer, chosen = project.layer(use.layer).definition, sets.pop(use.layer, {})
        check_written(layer, use.set, files)
        check_given(layer, chosen)
        uses.append(make_use(project, use.layer, {**use.set, **chosen}, taken, where))
    return uses
