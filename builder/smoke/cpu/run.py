"""The cpu tier: checks that run code of the image, on arm64 or under qemu."""

from __future__ import annotations

import ast
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile

from builder.model.check import Check
from builder.smoke.cpu.basic import Job, job
from builder.smoke.cpu.driver import PROGRAM
from builder.smoke.cpu.runner import Command, Runner, Unable, follow, run
from builder.smoke.cpu.select import pick_runner
from builder.smoke.image.opened import open_image
from builder.smoke.logscan import DECLARES, JUDGES, declarations, judge_logs
from builder.smoke.report import Report, Result, Status
from builder.smoke.static.run import Failed

Tell = Callable[[str], object]
Logs = dict[str, str]

_START = 300.0
"""Seconds an interpreter may take to start, on top of the first check's."""


def run_cpu(
    layout: Path,
    manifest_digest: str | None,
    checks: Sequence[Check],
    *,
    folder: Path,
    env: Mapping[str, str] | None = None,
    runner: Runner | None = None,
    only: str | None = None,
    tell: Callable[[str], object] = lambda text: None,
) -> Report:
    """Run the cpu checks among `checks` on one image.

    folder: where a chroot's image is unpacked, and kept for the next run. env: on top of the image's. runner: how to
    run commands, by default what `pick_runner` finds; only: the one way to try. tell: told what is being run.
    Where the image cannot be run, every check is `not-run`, with the reason.
    Raises InvalidError for a check that does not exist or has wrong arguments, and for an unreadable image.
    """
    image = open_image(layout, manifest_digest)
    start = [*(image.settings.get("Entrypoint") or []), *(image.settings.get("Cmd") or [])]
    asked = [check for check in checks if check.tier == "cpu"]
    declarations(asked)
    jobs = [job(check, start) for check in asked if check.kind not in (DECLARES, JUDGES)]
    report = Report(image.digest)
    if not jobs:
        return report
    try:
        tell("preparing the image to run")
        way = runner or pick_runner(image, folder, only)
    except Unable as reason:
        report.results = [Result(check.id, check.kind, "cpu", "not-run", str(reason)) for check in asked]
        return report
    logs: dict[str, str] = {}
    try:
        results: dict[int, Result] = {}
        groups: dict[tuple[object, ...], list[int]] = {}
        for number, each in enumerate(jobs):
            groups.setdefault((number if each.argv else None, *each.process), []).append(number)
        for numbers in groups.values():
            group = [jobs[number] for number in numbers]
            try:
                one = _command if group[0].argv else _python
                found = one(way, group, env or {}, tell, logs)
            except Unable as reason:
                found = [_result(each, "not-run", str(reason), 0.0) for each in group]
            results.update(zip(numbers, found, strict=True))
        report.results = [results[number] for number in range(len(jobs))]
        # What a failed check printed is in its own result.
        passed = {result.id for result in report.results if result.status == "pass"}
        heard = {name: text for name, text in logs.items() if name in passed}
        report.results += judge_logs(asked, heard, "cpu")
        report.notes.append(way.note())
    finally:
        if runner is None:
            way.close()
    return report


def _command(runner: Runner, jobs: Sequence[Job], env: Mapping[str, str], tell: Tell, logs: Logs) -> list[Result]:
    (job,) = jobs
    tell(job.check.id)
    variables = {**env, **dict(job.env)}
    if job.apart is None:
        done = run(runner, Command(job.argv, variables, job.user), job.timeout)
        if not job.quiet:
            logs[job.check.id] = done.output
        return [_judge(job, done.code, done.output, done.seconds)]
    with TemporaryFile() as errors:
        done = run(runner, Command(job.argv, variables, job.user, errors), job.timeout)
        errors.seek(0)
        apart, said = job.apart, errors.read().decode(errors="replace")
    job = replace(job, judge=lambda code, text: apart(code, text, said))
    return [_judge(job, done.code, done.output, done.seconds)]


def _python(runner: Runner, jobs: Sequence[Job], env: Mapping[str, str], tell: Tell, logs: Logs) -> list[Result]:
    """Run Python checks in one interpreter; when one takes it down, the rest get another."""
    results: list[Result] = []
    rest = list(jobs)
    while rest:
        found = _interpreter(runner, rest, env, tell, logs)
        results += found
        # At least one is done each time, if only by failing.
        rest = rest[len(found) :]
    return results


def _interpreter(runner: Runner, jobs: Sequence[Job], env: Mapping[str, str], tell: Tell, logs: Logs) -> list[Result]:
    mark = f"@{secrets.token_hex(8)} "
    results: list[Result] = []
    noise: list[str] = []
    begun = time.monotonic()
    deadline = begun + _START + jobs[0].timeout

    def line(data: bytes) -> None:
        nonlocal begun, deadline
        text = data.decode(errors="replace")
        if not text.startswith(mark):
            noise.append(text)
            return
        said = ast.literal_eval(text[len(mark) :])
        now = jobs[len(results)]
        if "begin" in said:
            tell(now.check.id)
            begun = time.monotonic()
            deadline = begun + now.timeout
        else:
            if not now.quiet:
                logs[now.check.id] = said["output"]
            results.append(_judge(now, 0 if said["ok"] else 1, said["output"], said["seconds"]))
            deadline = time.monotonic() + _START

    first = jobs[0]
    program = ascii([(each.check.id, each.code) for each in jobs])
    command = Command([first.python, "-c", PROGRAM, mark, program], {**env, **dict(first.env)}, first.user)
    code = follow(runner.start(command), line, lambda: deadline)
    if len(results) < len(jobs):
        now = jobs[len(results)]
        seconds = time.monotonic() - begun
        output = "".join(noise)[-2000:]
        if code is not None:
            output = f"the interpreter ended by itself\n{output}"
        results.append(_judge(now, code or (1 if code == 0 else None), output, seconds))
    return results


def _judge(job: Job, code: int | None, output: str, seconds: float) -> Result:
    if code is None:
        tail = output.strip()[-1000:]
        said = f"it did not end within {job.timeout:g} s" + (f": {tail}" if tail else "")
        return _result(job, "fail", said, seconds)
    try:
        return _result(job, "pass", job.judge(code, output), seconds)
    except (Failed, ValueError) as reason:
        return _result(job, "fail", str(reason), seconds)


def _result(job: Job, status: Status, message: str, seconds: float) -> Result:
    return Result(job.check.id, job.check.kind, "cpu", status, message, round(seconds, 3))
