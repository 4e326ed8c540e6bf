"""`builder build --all`: which recipes can be built here, and how it went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from builder.cli.options import make_plan, say
from builder.errors import BuilderError, PinError, UsageError

if TYPE_CHECKING:
    from builder.model.plan import Plan
    from builder.project import Project


def plans_of_all(
    project: Project,
    names: Sequence[str],
    base: str | None,
    sets: Sequence[str] | None,
    platform: str,
    compression: str,
    profile: str | None,
) -> tuple[list[Plan], dict[str, str]]:
    """The plans of the recipes that can be built, and for each of the others why it cannot.

    A recipe is left out when it does not name the base, when that base is not pinned, or when it does not have the
    profile. Anything else that is wrong with a recipe is an error, and so it is when none is left. `--set` reaches
    the recipes that have the layer.
    """
    plans: list[Plan] = []
    left: dict[str, str] = {}
    first: BuilderError | None = None
    used: set[str] = set()
    for name in names:
        try:
            has = _layers(project, name, base, profile)
        except (UsageError, PinError) as error:
            left[name] = f"{error.what}: {error.cause}" if error.cause else error.what
            # What stands in the way of a recipe that names the base tells more than that others do not name it.
            first = error if first is None or isinstance(error, PinError) else first
            continue
        mine = [item for item in sets or () if item.partition(".")[0] in has or "." not in item.partition("=")[0]]
        used |= set(mine)
        plans.append(make_plan(project, name, base, mine, platform, compression, profile))
    if not plans and first is not None:
        raise first
    unused = [item for item in sets or () if item not in used]
    if unused:
        raise UsageError(f"--set {unused[0]!r} names a layer that none of these recipes has")
    for name, why in left.items():
        say(f"left out: {name}: {why}")
    return plans, left


def _layers(project: Project, name: str, base: str | None, profile: str | None) -> set[str]:
    """The layers above the base of what would be built. Raises UsageError or PinError where it cannot be."""
    from builder.model.variant import with_profile
    from builder.plan.bases import check_pinned, select_base

    recipe = with_profile(project.recipe(name), profile, project.shared_profiles)
    check_pinned(project, recipe, select_base(project, recipe, base))
    return {use.layer for use in recipe.layers}


def close(results: Sequence[Mapping[str, Any]], left: Mapping[str, str], failed: Mapping[str, BuilderError]) -> None:
    """Say what the whole took. Raises the first failure's class of error when a recipe was not built."""
    layers = {item["key"]: item for made in results for item in made["layers"] if item["state"] != "config"}
    fresh = {item["key"] for made in results for item in made["layers"] if item["state"] == "built"}
    seconds = sum(float(made["seconds"]) for made in results)
    say(
        f"{len(results)} of {len(results) + len(left) + len(failed)} recipes built in {seconds:.1f} s: {len(layers)} "
        f"distinct layers, {len(fresh)} of them made now; {len(left)} left out"
    )
    if failed:
        kind = next(iter(failed.values()))
        raise type(kind)(
            f"{len(failed)} recipes were not built: {', '.join(failed)}",
            cause=kind.what,
            next="the messages above say why; what was built is in the store",
        )
