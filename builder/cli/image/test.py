"""`builder test`: options and output. `test_subject` finds the image, `test_tiers` runs the checks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from builder.atomic import check_writable
from builder.cli.image.test_subject import Subject, find_subject
from builder.cli.image.test_tiers import TIERS, TestRequest, check_only, not_requested, run_tiers
from builder.cli.link import check_link
from builder.cli.options import (
    COMPRESSION,
    PLATFORM,
    BaseOption,
    CompressionOption,
    JsonOption,
    ProfileOption,
    SetOption,
)
from builder.cli.output import print_json, say
from builder.cli.request import asked
from builder.errors import SmokeError, UsageError
from builder.plan.imageconfig import BASE_LABEL, RECIPE_LABEL
from builder.project import Project
from builder.smoke.gpu.machine import Options as GpuOptions
from builder.smoke.html import as_html
from builder.smoke.report import Report
from builder.smoke.results import keep_results
from builder.text import has_color

SERVED = ("small", "recipe")


def test(
    reference: Annotated[
        str | None,
        typer.Argument(
            metavar="REF",
            help="Image to test instead of the recipe's built one: REGISTRY/REPOSITORY:TAG or …@DIGEST, which is read "
            "in the registry without a copy, or oci:DIR.",
        ),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option("--recipe", "-r", help="Recipe whose checks to run; `builder list` shows all.")
    ] = None,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    tier: Annotated[
        list[str] | None, typer.Option("--tier", help="static, cpu or gpu. May be repeated; default: static.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Run only the check of this name. May be repeated.")
    ] = None,
    structure: Annotated[
        list[Path] | None,
        typer.Option("--structure", help="Also run the tests of this file, in container-structure-test's format."),
    ] = None,
    require: Annotated[bool, typer.Option("--require", help="Fail when a check cannot run on this machine.")] = False,
    junit: Annotated[Path | None, typer.Option("--junit", help="Also write JUnit XML to this file.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Also write an HTML page to this file.")] = None,
    results: Annotated[
        Path | None, typer.Option("--results", help="Folder that keeps the results; default: beside the image.")
    ] = None,
    serve: Annotated[
        str, typer.Option("--serve", help="gpu: the model to serve: small (a small model) or recipe (the recipe's).")
    ] = "small",
    peer: Annotated[
        str | None, typer.Option("--peer", help="gpu: address of a second Spark on the direct link, reached by ssh.")
    ] = None,
    interface: Annotated[
        str | None, typer.Option("--interface", help="gpu: interface of the direct link on this Spark.")
    ] = None,
    hca: Annotated[
        str | None, typer.Option("--hca", help="gpu: RDMA devices of the direct link on this Spark.")
    ] = None,
    nccl_tests: Annotated[
        Path | None, typer.Option("--nccl-tests", help="gpu: also run this all_reduce_perf.", exists=True)
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="gpu: the weights are on this machine; do not query the hub.")
    ] = False,
    compression: CompressionOption = COMPRESSION,
    json_: JsonOption = False,
) -> None:
    """Run the smoke checks that the base, the layers and the recipe of an image declare.

    Without REF, test the built image of the recipe. Results are kept beside the image, under its digest.
    """
    tiers = tuple(dict.fromkeys(tier or ["static"]))
    if unknown := [name for name in tiers if name not in TIERS]:
        raise UsageError(f"there is no tier {unknown[0]!r}", id="tier-unknown", next=f"one of {', '.join(TIERS)}")
    if serve not in SERVED:
        raise UsageError(
            f"--serve {serve!r} is neither small nor recipe", id="serve-unknown", next="--serve small, or recipe"
        )
    if reference is not None and recipe is None and (base or set_ or profile):
        raise UsageError(
            "--base, --set and --profile belong to a recipe",
            id="recipe-options-without-recipe",
            next="add --recipe NAME",
        )
    check_link(interface, peer, hca)
    _check_reports(junit, html)
    if results is not None and results.exists() and not results.is_dir():
        raise _not_writable(results, "it is a file, not a folder")
    planned = None if recipe is None else asked(Project(), recipe, base, set_, profile, PLATFORM, compression)
    names = tuple(only or ())
    gpu = GpuOptions(serve, peer, interface, hca, nccl_tests, offline, names)
    request = TestRequest(tiers, names, planned, gpu)
    subject = find_subject(reference, planned, structure or (), whole="cpu" in tiers)
    check_only(subject, request)
    report = run_tiers(subject, request)
    # Checks that were not requested are shown, but not kept: they would replace results of an earlier run.
    shown = Report(report.digest, [*report.results, *not_requested(subject, request)], report.notes)
    _write_reports(shown, subject, junit, html)
    if json_:
        print_json(shown.as_dict())
    else:
        print(shown.as_table(width=None if sys.stdout.isatty() else 160, color=has_color(sys.stdout)))
    if not only:
        # Results of some checks must not replace those of the whole tier.
        say(f"results: {keep_results(report, results or subject.results)}")
    if not shown.ok(require=require):
        # The name of the image has the digest already.
        what = shown.summary().partition(": sha256:")[0]
        hint = "see the table above for each check"
        if planned is None and (words := _words_of_plan(subject.image.settings.get("Labels") or {})):
            hint += f"; with what the recipe and its base allow: {words} {reference}"
        raise SmokeError(what, id="smoke-checks-failed", where=subject.name, next=hint)


def _words_of_plan(labels: Mapping[str, Any]) -> str:
    """The command that tests an image with the plan that its labels name; empty when this project lacks the recipe."""
    project, name, base = Project(), labels.get(RECIPE_LABEL), labels.get(BASE_LABEL)
    if name not in project.recipe_names():
        return ""
    other = f" --base {base}" if base in project.base_names() and project.recipe(name).base != base else ""
    return f"builder test --recipe {name}{other}"


def _write_reports(report: Report, subject: Subject, junit: Path | None, html: Path | None) -> None:
    """Write the files of --junit and --html."""
    if junit is not None:
        _write(junit, report.as_junit())
    if html is not None:
        title = (subject.image.settings.get("Labels") or {}).get("org.opencontainers.image.title", "")
        _write(html, as_html(report, str(title)))


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise _not_writable(file, error.strerror or "") from None


def _not_writable(file: Path, why: str) -> UsageError:
    return UsageError(
        f"cannot write: {why}",
        id="report-not-writable",
        where=str(file),
        next="name a place that you can write",
    )


def _check_reports(*files: Path | None) -> None:
    """Raises UsageError for a report that cannot be written, or is two reports, before minutes of checks."""
    named = [file.absolute() for file in files if file is not None]
    if len(set(named)) < len(named):
        raise UsageError(
            "two reports have the same file",
            id="report-twice",
            where=str(named[0]),
            next="name a file for each of --junit and --html",
        )
    for file in files:
        if file is None:
            continue
        if file.is_dir() or (file.exists() and not os.access(file, os.W_OK)):
            raise _not_writable(file, "it is a folder" if file.is_dir() else "permission denied")
        try:
            check_writable(file.parent)
        except OSError:
            why = "no file can be made there" if file.parent.is_dir() else "there is no such folder"
            raise _not_writable(file, why) from None
