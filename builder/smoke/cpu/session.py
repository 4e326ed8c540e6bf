"""Executes cpu checks with a runner: commands one by one, Python checks several in one interpreter."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence

from builder.smoke.check import check_result, run_check
from builder.smoke.cpu.driver import PROGRAM
from builder.smoke.cpu.execution import Execution, Judge
from builder.smoke.cpu.runner import Command, Runner, Tail, follow, run
from builder.smoke.report import Result

_START = 300.0
"""Seconds that an interpreter may take to start, added to the timeout of its first check."""


class Session:
    """Executes checks with one runner. logs: the output of each check that is not quiet, by check id."""

    def __init__(self, runner: Runner, env: Mapping[str, str], progress: Callable[[str], object]) -> None:
        self.logs: dict[str, str] = {}
        self._runner = runner
        self._env = env
        self._progress = progress

    def command(self, execution: Execution) -> Result:
        """Run one command. Raises CheckNotRun when the runner cannot."""
        self._progress(execution.check.id)
        variables = {**self._env, **dict(execution.env)}
        judge_streams = execution.judge_streams
        command = Command(execution.argv, variables, execution.user, apart=judge_streams is not None)
        done = run(self._runner, command, execution.timeout)
        self._log(execution, done.output)
        judge = execution.judge
        if judge_streams is not None:
            judge = lambda code, text: judge_streams(code, text, done.errors)  # noqa: E731
        return _judged(execution, judge, done.code, done.output, done.seconds)

    def python(self, executions: Sequence[Execution]) -> list[Result]:
        """Run Python checks in one interpreter; when a check ends the interpreter, the rest run in a new one.

        Raises CheckNotRun when the runner cannot run them.
        """
        results: list[Result] = []
        while len(results) < len(executions):
            # Each interpreter produces at least one result, even if it is a failure.
            results += self._interpreter(executions[len(results) :])
        return results

    def _interpreter(self, executions: Sequence[Execution]) -> list[Result]:
        mark = f"@{secrets.token_hex(8)} "
        results: list[Result] = []
        noise = Tail()
        begun = time.monotonic()
        running = False
        deadline = begun + _START + executions[0].timeout

        def line(data: bytes) -> None:
            nonlocal begun, deadline, running
            text = data.decode(errors="replace")
            what, _, escaped = text.removeprefix(mark).rstrip("\n").partition(" ")
            # The interpreter is the image's: it may print anything at any time.
            if not text.startswith(mark) or what not in (("pass", "fail") if running else ("begin",)):
                noise.add(data)
                return
            if len(results) == len(executions):
                return
            running = not running
            current = executions[len(results)]
            if running:
                self._progress(current.check.id)
                begun = time.monotonic()
                deadline = begun + current.timeout
                return
            try:
                output = escaped.encode("ascii", "replace").decode("unicode_escape")
            except UnicodeDecodeError:
                output = escaped
            self._log(current, output)
            results.append(_judged(current, current.judge, int(what == "fail"), output, time.monotonic() - begun))
            deadline = time.monotonic() + _START

        first = executions[0]
        program = ascii([each.code for each in executions])
        env = {**self._env, **dict(first.env)}
        command = Command([first.python, "-c", PROGRAM, mark, program], env, first.user)
        code = follow(self._runner.start(command), line, lambda: deadline)
        if len(results) < len(executions):
            current = executions[len(results)]
            output = noise.text()[-2000:]
            if code is not None:
                output = f"the interpreter ended by itself\n{output}"
                code = code or 1
            results.append(_judged(current, current.judge, code, output, time.monotonic() - begun))
        return results

    def _log(self, execution: Execution, output: str) -> None:
        if not execution.quiet:
            self.logs[execution.check.id] = output


def _judged(execution: Execution, judge: Judge, code: int | None, output: str, seconds: float) -> Result:
    """code: the exit status, None after a timeout."""
    if code is None:
        tail = output.strip()[-1000:]
        message = f"no end within {execution.timeout:g} s" + (f": {tail}" if tail else "")
        return check_result(execution.check, "fail", message, seconds)
    status = code
    return run_check(execution.check, lambda: judge(status, output), seconds)
