"""`builder test`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from builder.cli.image.build import make_image
from builder.cli.options import (
    BaseOption,
    CompressionOption,
    JsonOption,
    ProfileOption,
    SetOption,
    make_plan,
    open_store,
    print_json,
    say,
)
from builder.digest import Digest
from builder.errors import SmokeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from builder.model.check import Check
    from builder.smoke.gpu.machine import GpuImage, Options
    from builder.smoke.image.opened import OpenedImage
    from builder.smoke.report import Report, Result

SERVED = ("small", "recipe")
TIERS = ("static", "cpu", "gpu")


def test(
    reference: Annotated[
        str | None,
        typer.Argument(
            metavar="[REF]",
            help="What to test instead of the recipe's built image: REGISTRY/REPOSITORY:TAG or …@DIGEST, read "
            "without a copy of it, or oci:DIR.",
        ),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option("--recipe", "-r", help="Recipe whose checks to run; `builder list` shows them.")
    ] = None,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    tier: Annotated[
        list[str] | None, typer.Option("--tier", help="static, cpu or gpu. May be repeated; default: static.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Run this check alone, by its name. May be repeated.")
    ] = None,
    structure: Annotated[
        list[Path] | None,
        typer.Option("--structure", help="Also run the tests of this file, in container-structure-test's format."),
    ] = None,
    require: Annotated[bool, typer.Option("--require", help="A check that cannot run here is an error.")] = False,
    junit: Annotated[Path | None, typer.Option("--junit", help="Also write JUnit XML to this file.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Also write one page of HTML to this file.")] = None,
    results: Annotated[
        Path | None, typer.Option("--results", help="Folder to keep results in; default: beside the image.")
    ] = None,
    serve: Annotated[
        str, typer.Option("--serve", help="gpu: what is served: small (a small model) or recipe (its own model).")
    ] = "small",
    peer: Annotated[
        str | None, typer.Option("--peer", help="gpu: a second Spark's address on the direct link, reached by ssh.")
    ] = None,
    interface: Annotated[str | None, typer.Option("--interface", help="gpu: this node's end of the link.")] = None,
    hca: Annotated[str | None, typer.Option("--hca", help="gpu: the RDMA devices of the link here.")] = None,
    nccl_tests: Annotated[
        Path | None, typer.Option("--nccl-tests", help="gpu: also run this all_reduce_perf.", exists=True)
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="gpu: the weights are staged: ask no hub.")] = False,
    compression: CompressionOption = "zstd",
    json_: JsonOption = False,
) -> None:
    """Run the smoke checks of an image: what its base, its layers and its recipe ask for.

    Without REF, of the recipe's image as it was built. Results are kept beside the image, under its digest.
    """
    from builder.smoke.gpu.machine import Options
    from builder.smoke.report import Report
    from builder.smoke.results import keep_results
    from builder.smoke.structure_file import structure_checks

    tiers = list(dict.fromkeys(tier or ["static"]))
    if unknown := [name for name in tiers if name not in TIERS]:
        raise UsageError(f"there is no tier {unknown[0]!r}", cause=f"one of {', '.join(TIERS)}")
    if serve not in SERVED:
        raise UsageError(f"--serve {serve!r} is neither small nor recipe")
    subject = _subject(reference, recipe, base, set_, profile, compression, runs="cpu" in tiers)
    for path in structure or ():
        subject.checks += structure_checks(path, subject.image.env)
    _known(subject, only or [], tiers)
    options = Options(serve, peer, interface, hca, nccl_tests, offline, tuple(only or ()))
    report = _run(subject, tiers, only or [], lambda checks: _gpu(subject, checks, recipe, base, profile, options))
    # Shown, and not kept: they would take the place of what running them found before.
    shown = Report(report.digest, [*report.results, *_left_out(subject, tiers, only or [])], report.notes)
    _write(junit, shown.as_junit)
    _write(html, lambda: _page(shown, subject))
    if json_:
        print_json(shown.as_dict())
    else:
        print(shown.as_table(width=None if sys.stdout.isatty() else 160, color=sys.stdout.isatty()))
    if not only:
        # A part of a tier would take the place of the whole.
        kept = keep_results(report, results or subject.results)
        say(f"results: {kept}")
    if not shown.ok(require=require):
        raise SmokeError(shown.summary(), where=subject.name, next="the table above names what failed")


@dataclass
class _Subject:
    """What is tested. layout: where its blobs are. ours: digests of layers that were built here, None for all."""

    name: str
    image: OpenedImage
    checks: list[Check]
    layout: Path
    results: Path
    ours: set[Digest] | None
    in_docker: GpuImage | None = None


def _subject(
    reference: str | None,
    recipe: str | None,
    base: str | None,
    sets: list[str] | None,
    profile: str | None,
    compression: str,
    *,
    runs: bool,
) -> _Subject:
    from builder.cli.image.test_gpu import built_image, pulled_image
    from builder.project import Project
    from builder.smoke.image.opened import open_image
    from builder.smoke.image.remote import built_layers, fetch_image, remote_image
    from builder.smoke.plan_checks import checks_of
    from builder.smoke.results import results_folder

    project = Project()
    if reference is None:
        if recipe is None:
            raise UsageError("no image to test", next="name a recipe (--recipe NAME), or a REF")
        built, store = make_image(project, recipe, base, sets, compression, profile)
        ours = {layer.digest for layer in built.image.layers if not layer.of_base}
        image = open_image(store.root, built.image.digest)
        where = results_folder(store.root)
        name, loaded = f"{recipe} {image.digest}", built_image(built, store)
        return _Subject(name, image, checks_of(built.plan), store.root, where, ours, loaded)
    checks = []
    if recipe is not None:
        plan = make_plan(project, recipe, base, sets, compression=compression, profile=profile)
        checks = checks_of(plan)
    elif base or sets or profile:
        raise UsageError("--base, --set and --profile belong to a recipe", next="name it: --recipe NAME")
    if reference.startswith("oci:"):
        layout = Path(reference.removeprefix("oci:"))
        image = open_image(layout)
        return _Subject(reference, image, checks, layout, results_folder(layout), built_layers(image))
    from builder.model.reference import Reference

    store = open_store()
    target = Reference.parse(reference)
    # Running an image takes all of it; looking into it only some layers, which are not kept.
    image = fetch_image(target, store) if runs else remote_image(target)
    where = results_folder(store.root)
    pulled = pulled_image(target, image.digest, image.config_digest)
    return _Subject(str(target), image, checks, store.root, where, built_layers(image), pulled)


def _gpu(
    subject: _Subject, checks: list[Check], recipe: str | None, base: str | None, profile: str | None, options: Options
) -> Report:
    from builder.cli.image.test_gpu import gpu_report

    return gpu_report(subject.image.digest, checks, subject.in_docker, recipe, base, profile, options)


def _known(subject: _Subject, only: list[str], tiers: list[str]) -> None:
    """Raises UsageError for names of no check, and of one that is of none of the tiers: it would not be run."""
    from builder.smoke.gpu.run import always_there
    from builder.smoke.static.run import ALWAYS

    for name in only:
        of = {check.tier for check in (*subject.checks, *ALWAYS) if check.id == name}
        of |= {"gpu"} if name in always_there() else set()
        if not of:
            raise UsageError(f"there is no check {name!r}", where=subject.name)
        if not of & set(tiers):
            raise UsageError(f"{name} is a check of the {min(of)} tier", next=f"builder test --tier {min(of)} …")


def _left_out(subject: _Subject, tiers: list[str], only: list[str]) -> list[Result]:
    """Tests of a file that somebody gave and that are of a tier that was not asked for."""
    from builder.smoke.report import Result

    return [
        Result(check.id, check.kind, check.tier, "not-run", f"it runs a command of the image: --tier {check.tier}")
        for check in subject.checks
        if check.kind == "structure-command" and check.tier not in tiers and (not only or check.id in only)
    ]


def _run(subject: _Subject, tiers: list[str], only: list[str], gpu: Callable[[list[Check]], Report]) -> Report:
    from builder.smoke.cpu.run import run_cpu
    from builder.smoke.report import Report
    from builder.smoke.static.run import ALWAYS, check_image

    digest = subject.image.digest
    checks = [check for check in subject.checks if not only or check.id in only]
    always = [check for check in ALWAYS if not only or check.id in only]
    store = open_store()
    report = Report(digest)
    if "static" in tiers:
        report.add(check_image(subject.image, checks, ours=subject.ours, always=always, folder=store.tmp))
    if "cpu" in tiers:
        store.claim("run")
        report.add(run_cpu(subject.layout, digest, checks, folder=store.unpacked, tell=say))
    if "gpu" in tiers:
        report.add(gpu(checks))
    return report


def _write(file: Path | None, text: Callable[[], str]) -> None:
    if file is not None:
        try:
            file.write_text(text(), "utf-8")
        except OSError as error:
            raise UsageError(f"cannot be written: {error.strerror}", where=str(file)) from None


def _page(report: Report, subject: _Subject) -> str:
    from builder.smoke.html import as_html

    title = (subject.image.settings.get("Labels") or {}).get("org.opencontainers.image.title", "")
    return as_html(report, str(title))
