"""`builder mirror`: all inputs of recipes copied to a folder or a registry."""

from __future__ import annotations

from typing import Annotated

import typer

from builder.cli.image.plan_all import plan_all
from builder.cli.options import BaseOption, JsonOption, MirrorOption, OfflineOption, ProfileOption, SetOption
from builder.cli.output import print_json, print_line, say, size
from builder.cli.progress import Progress
from builder.cli.request import PlanRequest, asked_each, open_store, recipe_names
from builder.errors import BuilderError, NetworkError, PinError
from builder.mirror.artifact import artifact_tag
from builder.mirror.backend import parse_backend
from builder.mirror.copy import Copier, MirrorReport
from builder.mirror.source import mirror_source
from builder.model.plan import Plan
from builder.project import Project


def mirror(
    target: Annotated[str, typer.Argument(metavar="DIR|REF", help="A folder, or REGISTRY/REPOSITORY.")],
    recipe: Annotated[
        list[str] | None, typer.Option("--recipe", "-r", help="Recipe whose inputs to mirror. May be repeated.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Mirror the inputs of every recipe.")] = False,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    base_layers: Annotated[
        bool,
        typer.Option("--base-layers", help="Also copy the layers of registry bases, for a push to another registry."),
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also read the files that are there already, and replace damaged ones.")
    ] = False,
    source: MirrorOption = None,
    offline: OfflineOption = False,
    json_: JsonOption = False,
) -> None:
    """Copy every input of recipes to a folder or a registry, for machines that cannot reach the upstreams.

    Build from the mirror with `builder build --mirror DIR|REF --offline`. Files that are there already are not sent.
    """
    project = Project()
    names = recipe_names(project, recipe, every=all_, next="builder mirror DIR --recipe NAME")
    backend, other = parse_backend(target), mirror_source(source)
    requests = asked_each(project, names, base, set_, profile)
    left_out: dict[str, str] = {}
    failed: dict[str, list[BuilderError]] = {}
    if all_:
        planned, left_out = plan_all(project, requests)
        plans = {artifact_tag(plan, requests[0].variant()): plan for plan in planned}
    else:
        plans, failed = _plans(project, requests)
    with Progress() as progress:
        copier = Copier(backend, open_store(), offline=offline, source=other, verify=verify, listener=progress.on_event)
        report = copier.run(plans, base_layers=base_layers)
    report.failed |= failed
    for warning in other.warnings() if other is not None else ():
        say(f"warning: {warning}")
    if json_:
        print_json(_as_dict(backend.name, report, progress.elapsed) | {"left_out": left_out})
    else:
        for tag, (artifact, _) in sorted(report.artifacts.items()):
            print_line(f"{artifact.digest}  {tag}", hang=4)
    sent, present = report.sent, report.present
    say(
        f"{backend.name}: {len(sent)} files ({size(sum(sent.values()))}) written, "
        f"{len(present)} ({size(sum(present.values()))}) were there, in {progress.elapsed:.1f} s"
    )
    raise_for(report)


def _plans(project: Project, requests: list[PlanRequest]) -> tuple[dict[str, Plan], dict[str, list[BuilderError]]]:
    """The plans by tag, and the errors of recipes without a plan, for example because a base is not pinned."""
    plans: dict[str, Plan] = {}
    failed: dict[str, list[BuilderError]] = {}
    for request in requests:
        try:
            plan = request.plan(project)
        except PinError as error:
            failed[request.recipe] = [error]
            continue
        plans[artifact_tag(plan, request.variant())] = plan
    return plans, failed


def _as_dict(name: str, report: MirrorReport, seconds: float) -> dict[str, object]:
    return {
        "mirror": name,
        "artifacts": [
            {
                "tag": tag,
                "digest": artifact.digest,
                "files": len(artifact.contents),
                "size": artifact.size,
                "state": "written" if new else "present",
            }
            for tag, (artifact, new) in sorted(report.artifacts.items())
        ],
        "sent": {"files": len(report.sent), "size": sum(report.sent.values())},
        "present": {"files": len(report.present), "size": sum(report.present.values())},
        "failed": [
            {"tag": tag, "errors": [error.what for error in errors]} for tag, errors in sorted(report.failed.items())
        ],
        "seconds": round(seconds, 3),
    }


def raise_for(report: MirrorReport) -> None:
    """Raise an error when an input is missing: the only error, or one that sums up several after printing them."""
    errors = {str(error): error for found in report.failed.values() for error in found}
    if not errors:
        return
    if len(errors) == 1:
        raise next(iter(errors.values()))
    for text in errors:
        say(f"builder: {text}")
    what = f"the mirror is incomplete: {', '.join(sorted(report.failed))}"
    cause = f"{len(errors)} errors, printed above; all other files are in the mirror"
    step = "run the same command again: it continues"
    if any(isinstance(error, PinError) for error in errors.values()):
        raise PinError(what, id="mirror-input-not-locked", cause=cause, next=step)
    raise NetworkError(what, id="mirror-incomplete", cause=cause, next=step)
