"""`builder mirror`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from builder.cli.options import (
    BaseOption,
    JsonOption,
    MirrorOption,
    OfflineOption,
    ProfileOption,
    SetOption,
    make_plan,
    open_store,
    print_json,
    say,
    size,
    warn_of,
)
from builder.errors import BuilderError, NetworkError, PinError, UsageError

if TYPE_CHECKING:
    from builder.mirror.copy import MirrorReport
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
        bool, typer.Option("--base-layers", help="Also the layers of registry bases, which a push elsewhere needs.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also read what is there already, and replace what is damaged.")
    ] = False,
    source: MirrorOption = None,
    offline: OfflineOption = False,
    json_: JsonOption = False,
) -> None:
    """Put every input of recipes into a folder or a registry, for sites without a way to the upstreams.

    Build from it with `builder build --mirror DIR|REF --offline`. What is there already is not sent again.
    """
    from builder.cli.progress import Watch
    from builder.mirror.artifact import artifact_tag
    from builder.mirror.backend import parse_backend
    from builder.mirror.copy import Copier
    from builder.mirror.source import mirror_source
    from builder.project import Project

    project = Project()
    names = project.recipe_names() if all_ else list(dict.fromkeys(recipe or ()))
    if not names:
        raise UsageError("no recipe given", next="builder mirror DIR --recipe NAME; builder list shows the names")
    backend = parse_backend(target)
    mirrored = mirror_source(source)
    left: dict[str, str] = {}
    unplanned: dict[str, list[BuilderError]] = {}
    if all_:
        from builder.cli.image.build_all import plans_of_all

        planned, left = plans_of_all(project, names, base, set_, "linux/arm64", "zstd", profile)
        plans = {artifact_tag(plan, _variant(profile, set_)): plan for plan in planned}
    else:
        plans, unplanned = _plans(project, names, base, set_, profile)
    with Watch() as watch:
        copier = Copier(backend, open_store(), offline=offline, source=mirrored, verify=verify, listener=watch.heard)
        report = copier.run(plans, base_layers=base_layers)
    report.failed |= unplanned
    warn_of(mirrored)
    if json_:
        print_json(_result(backend.name, report, watch.elapsed) | {"left_out": left})
    else:
        for tag, (artifact, _) in sorted(report.artifacts.items()):
            print(f"{artifact.digest}  {tag}")
    sent, present = report.sent, report.present
    say(
        f"{backend.name}: {len(sent)} files ({size(sum(sent.values()))}) written, "
        f"{len(present)} ({size(sum(present.values()))}) were there, in {watch.elapsed:.1f} s"
    )
    _fail(report)


def _plans(
    project: Project, names: list[str], base: str | None, sets: list[str] | None, profile: str | None
) -> tuple[dict[str, Plan], dict[str, list[BuilderError]]]:
    """Plans by tag. A recipe that cannot be planned, as its base is not pinned, does not stop the others."""
    from builder.mirror.artifact import artifact_tag

    plans: dict[str, Plan] = {}
    failed: dict[str, list[BuilderError]] = {}
    for name in names:
        try:
            plan = make_plan(project, name, base, sets, profile=profile)
        except PinError as error:
            failed[name] = [error]
            continue
        plans[artifact_tag(plan, _variant(profile, sets))] = plan
    return plans, failed


def _variant(profile: str | None, sets: list[str] | None) -> list[str]:
    """What was asked for besides recipe and base."""
    return [*([f"profile={profile}"] if profile else []), *sorted(sets or ())]


def _result(name: str, report: MirrorReport, seconds: float) -> dict[str, object]:
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


def _fail(report: MirrorReport) -> None:
    """Raises an error when something could not be had: the only one there is, or one for all, which are told."""
    if not report.failed:
        return
    errors = {str(error): error for found in report.failed.values() for error in found}
    if len(errors) == 1:
        raise next(iter(errors.values()))
    for text in errors:
        say(f"builder: {text}")
    kind = PinError if any(isinstance(error, PinError) for error in errors.values()) else NetworkError
    raise kind(
        f"not complete: {', '.join(sorted(report.failed))}",
        cause=f"{len(errors)} errors, above; everything else is in the mirror",
        next="run the same command again: it goes on where it stopped",
    )
