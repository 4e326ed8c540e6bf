"""Plans for --all: which recipes can be built on a base, and why the others cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from builder.cli.output import say
from builder.cli.request import PlanRequest
from builder.errors import BuilderError, PinError, UsageError
from builder.model.plan import Plan
from builder.plan.bases import check_pinned
from builder.project import Project


def plan_all(project: Project, requests: Sequence[PlanRequest]) -> tuple[list[Plan], dict[str, str]]:
    """The plans of the recipes that can be built, and the reason for each recipe that is left out.

    A recipe is left out when it does not name the base, when that base is not pinned, or when the recipe does not have
    the profile. Any other error of a recipe is raised, and so is the best reason when no recipe is left. `--set`
    applies to the recipes that have the layer. Raises UsageError when no recipe has it.
    """
    plans: list[Plan] = []
    left_out: dict[str, str] = {}
    reason: BuilderError | None = None
    used: set[str] = set()
    for request in requests:
        try:
            layers = _layers(project, request)
        except (UsageError, PinError) as error:
            left_out[request.recipe] = f"{error.what}: {error.cause}" if error.cause else error.what
            # Prefer PinError: it is more specific than "does not run on this base".
            reason = error if reason is None or isinstance(error, PinError) else reason
            continue
        sets = tuple(item for item in request.sets if _applies(item, layers))
        used.update(sets)
        plans.append(replace(request, sets=sets).plan(project))
    if not plans and reason is not None:
        raise reason
    for item in requests[0].sets if requests else ():
        if item not in used:
            raise UsageError(
                f"--set {item!r} names a layer that none of these recipes has", id="set-layer-in-no-recipe"
            )
    for name, why in left_out.items():
        say(f"left out: {name}: {why}")
    return plans, left_out


def _applies(item: str, layers: set[str]) -> bool:
    """Whether a --set is for one of these layers. One without a layer stays, so that planning reports it."""
    return item.partition(".")[0] in layers or "." not in item.partition("=")[0]


def _layers(project: Project, request: PlanRequest) -> set[str]:
    """The layers above the base. Raises UsageError or PinError when the recipe cannot be built on the base."""
    recipe, base = request.recipe_and_base(project)
    check_pinned(project, recipe, base)
    return {use.layer for use in recipe.layers}
