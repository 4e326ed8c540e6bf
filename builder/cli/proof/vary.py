"""`verify --vary`: prints what each variation changed, and the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from builder.cli.output import counted, say
from builder.engine.buildah import BuildahEngine
from builder.engine.select import check_engine, select_engine
from builder.errors import DiffersError
from builder.model.plan import Plan
from builder.smoke.image.opened import LayerBlob
from builder.store.store import Store
from builder.verify.vary.kinds import Variation
from builder.verify.vary.run import Variations, Varied


def steps_engine(engine: str | None, builder: Sequence[str] | None) -> str | None:
    """The engine for variations: buildah if none is named, because its steps run on this machine, not in a daemon."""
    if not builder and check_engine(engine, builder) == "auto" and BuildahEngine().probe().usable:
        return "buildah"
    return engine


def vary(
    store: Store,
    plan: Plan,
    rebuilt: Mapping[str, LayerBlob],
    variations: Sequence[Variation],
    *,
    engine: str | None,
    builder: Sequence[str] | None,
    jobs: int | None,
    log: Callable[[str], None],
) -> list[Varied]:
    """Rebuild under each variation, and print each result when it is there. Raises EngineError without an engine."""
    if not variations:
        return []
    made = [layer for layer in plan.layers if layer.id in rebuilt]
    steps = any(layer.producer == "dockerfile" for layer in made)
    name = select_engine(engine, builder).name if steps else ""
    for layer in made:
        if layer.reads_base:
            say(f"  not varied: layer {layer.id}, whose steps read files of the base")
    found = []
    runs = Variations(store, plan, rebuilt, engine=name, builder=builder, jobs=jobs, log=log)
    for result in runs.run(variations):
        found.append(result)
        _say(result)
    counts = Counter(item.outcome for item in found)
    say(
        f"{counted(counts['identical'] + counts['differs'], 'variation')}: {counts['identical']} identical, "
        f"{counts['differs']} not; {counts['not varied']} could not be had on this machine"
    )
    return found


def _say(result: Varied) -> None:
    about = result.reason or (f"{counted(len(result.layers), 'layer')} in {result.seconds:.0f} s")
    say(f"  {result.variation:42} {result.outcome:10}  {about}", hang=4)
    for item in result.changed:
        say(f"    layer {item.layer}{f': {item.cause}' if item.cause else ''}")
        for line in item.files:
            say(f"      {line}")


def as_json(found: Sequence[Varied]) -> dict[str, Any]:
    """The results as a member of the JSON; none without variations."""
    return {"variations": [asdict(item) for item in found]} if found else {}


def check_varied(found: Sequence[Varied], where: str) -> None:
    """Raises DiffersError when a variation changed a layer, or none of them could be had."""
    varied = [item for item in found if item.outcome != "not varied"]
    if found and not varied:
        raise DiffersError("nothing was varied", id="verify-varied-nothing", where=where)
    wrong = [item for item in varied if item.outcome == "differs"]
    if not wrong:
        return
    causes = [f"{item.variation}: {_changes(item)}" for item in wrong]
    raise DiffersError(
        f"{len(wrong)} of {counted(len(varied), 'variation')} changed a layer",
        id="verify-varies",
        where=where,
        cause="; ".join(causes[:5]),
    )


def _changes(result: Varied) -> str:
    layers = (f"{item.layer}{f' ({item.cause})' if item.cause else ''}" for item in result.changed)
    return result.reason or ", ".join(f"layer {text}" for text in layers)
