"""The cpu tier: runs the checks that execute code of the image, on arm64 or under qemu."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from builder.digest import Digest
from builder.model.check import Check
from builder.smoke.check import CheckNotRun, check_result
from builder.smoke.cpu import basic, commands, cuda, logs, media, serving
from builder.smoke.cpu.execution import Execution, execution_of
from builder.smoke.cpu.logs import DECLARES, JUDGES, declarations, judge_logs
from builder.smoke.cpu.runner import Runner
from builder.smoke.cpu.select import pick_runner
from builder.smoke.cpu.session import Session
from builder.smoke.image.opened import open_image
from builder.smoke.report import Report, Result

MODULES = (basic, commands, cuda, logs, media, serving)
"""Importing these registers the kinds of cpu checks."""


def run_cpu(
    layout: Path,
    manifest_digest: Digest | None,
    checks: Sequence[Check],
    *,
    folder: Path,
    env: Mapping[str, str] | None = None,
    runner: Runner | None = None,
    only: str | None = None,
    progress: Callable[[str], object] = lambda text: None,
) -> Report:
    """Run the cpu checks among `checks` on one image.

    folder: for the unpacked image of runc, kept for the next run. env: added to the image's. runner: how to run
    commands, by default the choice of `pick_runner`; only: the one runner to try. progress: gets messages.
    Where this machine cannot run the image, every check is `not-run`, with the reason.
    Raises InvalidError for an unknown kind of check, for wrong arguments, and for an unreadable image.
    """
    image = open_image(layout, manifest_digest)
    start = [*(image.settings.get("Entrypoint") or []), *(image.settings.get("Cmd") or [])]
    asked = [check for check in checks if check.tier == "cpu"]
    declarations(asked)
    executions = [execution_of(check, start) for check in asked if check.kind not in (DECLARES, JUDGES)]
    report = Report(image.digest)
    if not executions:
        return report
    try:
        progress("preparing the image to run")
        chosen = runner or pick_runner(image, folder, only, progress)
    except CheckNotRun as reason:
        report.results = [check_result(check, "not-run", str(reason)) for check in asked]
        return report
    session = Session(chosen, env or {}, progress)
    try:
        report.results = _run(session, executions)
        # The output of a failed check is in its own result.
        passed = {result.id for result in report.results if result.status == "pass"}
        report.results += judge_logs(asked, {name: text for name, text in session.logs.items() if name in passed})
        report.notes.append(chosen.note())
    finally:
        if runner is None:
            chosen.close()
    return report


def _run(session: Session, executions: Sequence[Execution]) -> list[Result]:
    """The results in the order of `executions`; Python checks that can share an interpreter do."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, execution in enumerate(executions):
        groups.setdefault((number if execution.argv else None, *execution.process), []).append(number)
    results: dict[int, Result] = {}
    for numbers in groups.values():
        group = [executions[number] for number in numbers]
        try:
            found = [session.command(group[0])] if group[0].argv else session.python(group)
        except CheckNotRun as reason:
            found = [check_result(each.check, "not-run", str(reason)) for each in group]
        results.update(zip(numbers, found, strict=True))
    return [results[number] for number in range(len(executions))]
