"""What a cpu check executes (Execution), the arguments that all cpu checks share, and common judges of output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from builder.model.check import Check
from builder.pattern import compiled
from builder.smoke.check import CheckFailed, bind_check, valid_arguments

Judge = Callable[[int, str], str]
"""Given the exit status and the output: the check's message. Raises CheckFailed or ValueError."""

SHARED = {"timeout": float, "env": dict[str, str], "user": str, "python": str, "alone": bool}
"""Arguments of every cpu check: timeout in seconds, env, user ("UID[:GID]"), python (the interpreter), alone."""


@dataclass(frozen=True)
class Execution:
    """What a check executes: Python `code`, or `argv`; judge turns its output into the check's message.

    alone: the code runs in an interpreter of its own. timeout: in seconds. judge_streams: replaces judge; it gets
    standard output and standard error separately. quiet: the output is not scanned for warnings, because the check
    expects an error.
    """

    check: Check
    judge: Judge
    code: str = ""
    argv: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    user: str = ""
    python: str = "python3"
    alone: bool = False
    timeout: float = 900.0
    judge_streams: Callable[[int, str, str], str] | None = None
    quiet: bool = False

    @property
    def process(self) -> tuple[object, ...]:
        """Executions of Python code with the same value can share an interpreter."""
        return (self.check.id if self.alone or self.argv else "", self.python, self.user, self.env)


def execution_of(check: Check, start: Sequence[str] = ()) -> Execution:
    """What a check executes. start: entrypoint and command of the image.

    Raises InvalidError for an unknown kind of check and for wrong arguments.
    """
    shared = valid_arguments(check, {name: value for name, value in check.args.items() if name in SHARED}, SHARED)
    own: dict[str, object] = {name: value for name, value in check.args.items() if name not in SHARED}
    if check.kind == "fails-without-gpu":
        own.setdefault("argv", tuple(start))
    execution: Execution = bind_check(check, own)(check)
    if "env" in shared:
        shared["env"] = tuple(sorted(shared["env"].items()))
    return replace(execution, **shared)


def require_status(status: int, output: str, wanted: int = 0) -> None:
    """Raises CheckFailed, with the end of the output, for another exit status than `wanted`."""
    if status != wanted:
        tail = output.strip()[-1500:]
        raise CheckFailed(f"exit status {status}{f', not {wanted}' if wanted else ''}" + (f": {tail}" if tail else ""))


def output_is(output: str | None, matches: str | None, status: int = 0, *, whole: bool = True) -> Judge:
    """A judge: the exit status is `status`, the output is `output`, and the pattern `matches` is in it.

    whole: the output is exactly `output`; otherwise it ends with these lines.
    """

    def judge(code: int, printed: str) -> str:
        require_status(code, printed, status)
        text = printed.strip()
        if output is not None and text != output.strip() and (whole or not text.endswith(f"\n{output.strip()}")):
            raise CheckFailed(f"the output is {text[-500:]!r}, expected {output.strip()!r}")
        if matches is not None:
            found = compiled(matches).search(text)
            if not found:
                raise CheckFailed(f"the output {text[-500:]!r} does not match {matches!r}")
            return found[0][:200]
        return text.rpartition("\n")[2][:200]

    return judge


def last_line_is(wanted: str | None) -> Judge:
    """A judge: the exit status is 0, and the last line of output is `wanted`, or any line for None."""

    def judge(code: int, printed: str) -> str:
        require_status(code, printed)
        line = printed.strip().rpartition("\n")[2]
        if wanted is not None and line != wanted:
            raise CheckFailed(f"the result is {line}, expected {wanted}")
        return line[:200]

    return judge
