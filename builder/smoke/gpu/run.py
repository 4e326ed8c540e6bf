"""The gpu tier: runs the checks of a GB10 in containers of the image, and names those of every image."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pydantic import JsonValue

from builder.digest import Digest
from builder.doctor.host import Host, ThisHost
from builder.errors import BuilderError
from builder.model.base import Base
from builder.model.check import Check
from builder.model.recipe import Recipe
from builder.smoke.check import (
    CheckFailed,
    CheckNotRun,
    CheckPassed,
    bind_check,
    check_result,
    find_kind,
    kinds_of,
    run_check,
)
from builder.smoke.gpu import image_checks, server_checks
from builder.smoke.gpu.docker import Docker
from builder.smoke.gpu.machine import GpuImage, Machine, Needs, Options, require_spark
from builder.smoke.gpu.server import Serving, started, wait
from builder.smoke.gpu.small import small
from builder.smoke.report import Report, Result

Progress = Callable[[str], object]
Bound = tuple[Check, Callable[[Any], str | CheckPassed]]
"""A check and its function, with its arguments bound."""

MODULES = (image_checks, server_checks)
"""Importing these registers the kinds of gpu checks."""


def run_gpu(
    digest: Digest,
    checks: Sequence[Check],
    recipe: Recipe,
    base: Base,
    image: GpuImage,
    *,
    options: Options | None = None,
    host: Host | None = None,
    progress: Progress = lambda text: None,
) -> Report:
    """Run the gpu checks among `checks`, and those of every image, on this machine.

    On a machine without a GB10 or without docker, every check is `not-run`, with the reason. Containers have unique
    names and are always removed. progress: gets messages.
    Raises InvalidError for an unknown kind of check and for wrong arguments.
    """
    options, host = options or Options(), host or ThisHost()
    served = small(recipe) if options.serve == "small" else recipe
    report = Report(digest)
    jobs = [(check, bind_check(check)) for check in _asked(checks, options)]
    for check, _ in list(jobs):
        flag = _needs(check).flag
        if flag and not served.serve.flags.get(flag):
            jobs = [job for job in jobs if job[0] is not check]
            report.notes.append(f"{check.id} does not apply: {served.model.id} is served without --{flag}")
    machine = Machine(host, Docker(), image, recipe, served, base, options)
    try:
        spark = require_spark(host)
        version = machine.docker.ready()
        _ensure_image(image, machine.docker, progress)
    except CheckNotRun as reason:
        report.results = [check_result(check, "not-run", str(reason)) for check, _ in jobs]
        return report
    found = {
        id(check): _run((check, run), machine, progress) for check, run in jobs if _needs(check).subject != "server"
    }
    found |= _serve(machine, [job for job in jobs if _needs(job[0]).subject == "server"], progress)
    report.results = [found[id(check)] for check, _ in jobs]
    report.notes.append(f"run on {spark}, docker {version}, as {image.name}; served: {served.model.id}")
    return report


def _asked(checks: Sequence[Check], options: Options) -> list[Check]:
    asked = {check.id: check for check in checks if check.tier == "gpu"}
    for check in defaults():
        asked.setdefault(check.id, check)
    library = next((check.args for check in asked.values() if check.kind == "nccl-all-reduce"), {})
    same = {name: value for name, value in library.items() if name in ("under", "version")}
    for check in list(asked.values()):
        if check.kind == "nccl-two-nodes":
            asked[check.id] = check.model_copy(update={"args": {**same, **check.args}})
    if options.peer and not any(check.kind == "nccl-two-nodes" for check in asked.values()):
        asked["nccl-two-nodes"] = Check(id="nccl-two-nodes", tier="gpu", kind="nccl-two-nodes", args=same)
    if options.nccl_tests:
        args: dict[str, JsonValue] = {"program": str(options.nccl_tests.resolve())}
        asked["nccl-tests"] = Check(id="nccl-tests", tier="gpu", kind="nccl-tests", args=args)
    return [check for check in asked.values() if not options.only or check.id in options.only]


def _ensure_image(image: GpuImage, docker: Docker, progress: Progress) -> None:
    """Make sure that docker has exactly this image. Raises CheckNotRun."""
    if docker.identity(image.name) not in image.ids:
        progress(f"loading {image.name} into docker")
        try:
            image.load()
        except BuilderError as error:
            raise CheckNotRun(f"the image cannot be loaded into docker: {error.what}") from error
        found = docker.identity(image.name)
        if found not in image.ids:
            raise CheckNotRun(f"docker has {found or 'nothing'} under the name {image.name}, not this image")


def _serve(machine: Machine, jobs: Sequence[Bound], progress: Progress) -> dict[int, Result]:
    """Start one server and run the server checks on it, in the order of their kinds."""
    found: dict[int, Result] = {}
    if not jobs:
        return found
    order = list(kinds_of("gpu"))
    jobs = sorted(jobs, key=lambda job: order.index(job[0].kind))
    begin = time.monotonic()
    try:
        progress(f"starting a server of {machine.served.model.id}")
        with started(machine) as serving:
            wait(serving, machine.options.start)
            serving.seconds["start"] = time.monotonic() - begin
            for check, run in jobs:
                found[id(check)] = _run((check, run), serving, progress)
    except (CheckFailed, CheckNotRun) as reason:
        seconds = time.monotonic() - begin
        why = "the server did not come up" if isinstance(reason, CheckFailed) else str(reason)
        for number, (check, _) in enumerate(jobs):
            # Only the first check fails with the reason; usually that is serve-health.
            if number == 0 and isinstance(reason, CheckFailed):
                found[id(check)] = check_result(check, "fail", str(reason), seconds)
            else:
                found.setdefault(id(check), check_result(check, "not-run", why))
    return found


def defaults() -> Iterator[Check]:
    """The checks of every image. A check of a base, layer or recipe with the same id replaces one of them."""
    for name in ("driver", "device", "triton-jit", "nccl-all-reduce"):
        yield Check(id=name, tier="gpu", kind=name)
    for name, kind in kinds_of("gpu").items():
        if kind.needs.subject == "server":
            yield Check(id=name, tier="gpu", kind=name)


def always_there() -> set[str]:
    """Ids of the checks that need no layer: those of every image, and those that an option adds."""
    return {check.id for check in defaults()} | {"nccl-tests", "nccl-two-nodes"}


def _run(bound: Bound, subject: Machine | Serving, progress: Progress) -> Result:
    check, function = bound
    progress(check.id)

    def run() -> str | CheckPassed:
        try:
            return function(subject)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            # A server or probe answered in another form than expected: that must not pass.
            raise CheckFailed(f"the answer cannot be read: {type(error).__name__}: {error}") from error

    return run_check(check, run)


def _needs(check: Check) -> Needs:
    needs = find_kind(check).needs
    assert isinstance(needs, Needs)
    return needs
