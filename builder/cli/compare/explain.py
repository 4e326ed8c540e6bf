"""`builder explain`: why a layer would be built again, why it is in the image, what it needs and who needs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

from builder.cli.compare.operand import project_at, unknown_revision
from builder.cli.compare.summary import short
from builder.cli.options import BaseOption, JsonOption, ProfileOption, RecipeOption, SetOption
from builder.cli.output import print_json, print_line, size
from builder.cli.request import asked, open_store
from builder.digest import Digest
from builder.errors import UsageError
from builder.model.plan import Plan, PlannedLayer
from builder.plan.diff import Change, Fact, changed
from builder.plan.explain import explain as explained
from builder.plan.explain import key_changes
from builder.project import Project
from builder.store.images import stored_images
from builder.store.store import Store
from builder.text import first_few

_SHOWN = 4


def explain(
    layer: Annotated[str | None, typer.Argument(metavar="LAYER", help="One layer; default: all.")] = None,
    *,
    recipe: RecipeOption,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Compare keys with this revision of the project, not with the store."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Explain the layers of an image: which would be built again, and which part of their key changed."""
    project, store = Project(), open_store()
    request = asked(project, recipe, base, set_, profile)
    plan = request.plan(project)
    chosen = [each for each in plan.layers if layer in (None, each.id)]
    if not chosen:
        raise UsageError(
            f"the image has no layer {layer!r}",
            id="explain-layer-unknown",
            where=f"{plan.recipe} on {plan.base}",
            cause=f"its layers: {', '.join(each.id for each in plan.layers)}",
        )
    old: Plan | None = None
    if since is not None:
        with project_at(project, since) as older:
            if older is None:
                raise unknown_revision(since, project)
            old = request.plan(older)
    rows = [_row(project, store, plan, each, old) for each in chosen]
    if json_:
        print_json(rows)
        return
    for row in rows:
        for line in _lines(row, whole=layer is not None):
            print_line(line, hang=16 if layer else 4)


def _row(project: Project, store: Store, plan: Plan, layer: PlannedLayer, old: Plan | None) -> dict[str, Any]:
    record = store.layer(layer.key) if layer.key else None
    against, changes = _changes(store, plan, layer, old, missing=record is None)
    return {
        "id": layer.id,
        "title": layer.title,
        "producer": layer.producer,
        "key": layer.key,
        "size": record.size if record is not None else None,
        "in_store": record is not None,
        "against": against,
        "changes": [asdict(change) for change in changes],
        "parameters": layer.params,
        **asdict(explained(project, plan, layer)),
    }


def _changes(
    store: Store, plan: Plan, layer: PlannedLayer, old: Plan | None, *, missing: bool
) -> tuple[str | None, list[Change]]:
    """What the layer is compared with, and what changed in its key."""
    if old is not None:
        before = next((each for each in old.layers if each.id == layer.id), None)
        if before is None:
            return "revision", [Change("layer", layer.id, None, "new in the image")]
        return "revision", key_changes((old, before), (plan, layer))
    if not missing or layer.producer == "config":
        return None, []
    row = _last_built(store, plan, layer)
    return ("store", _since_built(row, plan, layer, store)) if row is not None else (None, [])


def _last_built(store: Store, plan: Plan, layer: PlannedLayer) -> dict[str, Any] | None:
    """The layer of this id in the image of the store that was used last; those of the same recipe first."""
    found = []
    for image in stored_images(store):
        row = image.rows.get(layer.id)
        if row is not None and isinstance(row.get("used"), list):
            found.append((image.recipe == plan.recipe, image.base == plan.base, image.used, image.key, row))
    return max(found, key=lambda item: item[:4])[4] if found else None


def _since_built(row: dict[str, Any], plan: Plan, layer: PlannedLayer, store: Store) -> list[Change]:
    """What changed since a layer was made, by its receipt: files by their name and hash."""
    used = [item for item in row["used"] if isinstance(item, dict)]
    before = {str(item.get("name")): _fact(item) for item in used if item.get("kind") != "toolchain"}
    after = {item.file: Fact(item.sha256[:12], item.sha256) for item in layer.inputs}
    after |= {path: _fact({"digest": Digest.of(data)}) for path, data in layer.context.items()}
    if layer.reads_base and plan.base_manifest is not None:
        after[f"{plan.base_image}@{plan.base_manifest}"] = Fact(plan.base_manifest.hex[:12], plan.base_manifest.hex)
    changes = list(changed("file", before, after))
    roots = {root.id: store.layer(root.key) for root in plan.toolchains}
    for item in used:
        name = str(item.get("name"))
        record = roots.get(name)
        if item.get("kind") == "toolchain" and (record is None or record.digest != item.get("digest")):
            changes.append(Change("toolchain", name, _fact(item).text, record.digest.short if record else "not built"))
    return changes or [Change("setting", "Dockerfile, parameters or format", str(row.get("key"))[:12], layer.key[:12])]


def _fact(item: dict[str, Any]) -> Fact:
    sha = str(item.get("digest")).removeprefix("sha256:")
    return Fact(sha[:12], sha)


def _lines(row: dict[str, Any], *, whole: bool) -> Iterator[str]:
    changes = [short(Change(**change)) for change in row["changes"]]
    state = (
        "no files" if not row["key"] else f"in the store, {size(row['size'])}" if row["in_store"] else "would be built"
    )
    few = first_few(changes, _SHOWN)
    if not whole:
        yield f"{row['id']:24} {row['key'][:12] or '-':12}  {state}" + (f": {few}" if changes else "")
        return
    yield f"{row['id']}: {row['title']}"
    yield f"  key         {row['key'] or 'none: it has no files'}"
    yield f"  state       {state}"
    if row["against"] is not None:
        what = "the revision" if row["against"] == "revision" else "the last one in the store"
        yield f"  changed     since {what}: {', '.join(changes) or 'nothing, its key is the same'}"
    yield f"  why here    {row['origin']}"
    for name, value in row["parameters"].items():
        yield f"  parameter   {name}={value}"
    for title, name in (("needs", "needs"), ("needed by", "needed_by")):
        yield from (f"  {title:11} {text}" for text in row[name])
    yield f"  used by     {', '.join(row['users'])}"
