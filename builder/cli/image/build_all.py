"""`builder build --all`: build every plan, go on after a failure, and sum up."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from builder.cli.image.build_one import BuildRequest, BuildResult, build_one, needs_text
from builder.cli.output import counted, say
from builder.errors import BuilderError, EngineError
from builder.model.plan import Plan
from builder.produce.survey import survey
from builder.store.store import Store


def build_all(
    store: Store, plans: Sequence[Plan], request: BuildRequest, done: Callable[[BuildResult], None]
) -> dict[str, BuilderError]:
    """Build every plan and return the errors by recipe. done: called with each image as soon as it is built."""
    failed: dict[str, BuilderError] = {}
    with contextlib.suppress(EngineError):  # Those recipes that need a toolchain fail with it.
        say(
            f"{counted(len(plans), 'recipe')}, all together: {needs_text(store, survey(store, *plans), request)}",
            hang=2,
        )
    for plan in plans:
        try:
            result = build_one(store, plan, request)
        except BuilderError as error:
            failed[plan.recipe] = error
            say(f"{plan.recipe} was not built: {error}")
        else:
            done(result)
    return failed


def sum_up(results: Sequence[BuildResult], left_out: Mapping[str, str], failed: Mapping[str, BuilderError]) -> None:
    """Print counts and time of all builds. Raises the class of the first error when a recipe was not built."""
    layers = {layer.key for item in results for layer in item.built.plan.layers if layer.id in item.built.records}
    new = {layer.key for item in results for layer in item.built.plan.layers if layer.id in item.built.made}
    seconds = sum(item.seconds for item in results)
    say(
        f"{len(results)} of {len(results) + len(left_out) + len(failed)} recipes built in {seconds:.1f} s: "
        f"{len(layers)} distinct layers, {len(new)} of them new; {len(left_out)} left out"
    )
    if failed:
        first = next(iter(failed.values()))
        raise first.replaced(
            what=f"{len(failed)} {'recipe was' if len(failed) == 1 else 'recipes were'} not built: {', '.join(failed)}",
            where="",
            cause=first.what,
            next="see the messages above; everything that was built is in the store",
        )
