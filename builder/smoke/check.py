"""The registry of smoke checks for all three tiers: kinds, argument validation, outcomes, and running one check."""

from __future__ import annotations

import difflib
import inspect
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar, get_type_hints

from builder.errors import InvalidError
from builder.model.check import Check
from builder.smoke.report import Result, Status

Tier = Literal["static", "cpu", "gpu"]
Function = TypeVar("Function", bound=Callable[..., Any])


class CheckFailed(Exception):
    """The check failed: the image is not as it must be."""


class CheckWarned(Exception):
    """The check found a problem that does not fail the image."""


class CheckNotRun(Exception):
    """The check does not apply, or this machine cannot run it."""


@dataclass(frozen=True)
class CheckPassed:
    """A passed check with data. details: JSON for --json and the HTML page."""

    message: str
    details: Any = None


@dataclass(frozen=True)
class CheckKind:
    """A kind of check. function: takes the tier's subject and the check's arguments as keywords.

    The subject of the static tier is a Context, of the cpu tier the Check, of the gpu tier a Machine or a Serving.
    The function returns a message or CheckPassed, or raises CheckFailed, CheckWarned or CheckNotRun; those of the cpu
    tier return an Execution, whose output is judged later. needs: what the tier prepares for it, a type of the tier.
    """

    tier: Tier
    name: str
    function: Callable[..., Any]
    needs: Any = None

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The type of each argument."""
        hints = get_type_hints(self.function, include_extras=True)
        return {name: hints[name] for name in self._keywords}

    @cached_property
    def required(self) -> list[str]:
        """The arguments without a default."""
        return [name for name, item in self._keywords.items() if item.default is item.empty]

    @cached_property
    def _keywords(self) -> dict[str, inspect.Parameter]:
        parameters = inspect.signature(self.function).parameters
        return {name: item for name, item in parameters.items() if item.kind is item.KEYWORD_ONLY}


_KINDS: dict[tuple[str, str], CheckKind] = {}


def check_kind(tier: Tier, name: str, needs: Any = None) -> Callable[[Function], Function]:
    """Register a function as a kind of check; the arguments of the check are its keyword-only parameters."""

    def register(function: Function) -> Function:
        _KINDS[tier, name] = CheckKind(tier, name, function, needs)
        return function

    return register


def kinds_of(tier: Tier) -> dict[str, CheckKind]:
    """The kinds of a tier by name, in the order of registration. The tier's `run` module registers all of them."""
    return {name: kind for (of, name), kind in _KINDS.items() if of == tier}


def find_kind(check: Check) -> CheckKind:
    """The kind of a check. Raises InvalidError when its tier has no kind of this name."""
    known = kinds_of(check.tier)
    if check.kind in known:
        return known[check.kind]
    close = difflib.get_close_matches(check.kind, known, 1)
    raise InvalidError(
        f"check {check.id}: the {check.tier} tier has no kind of check {check.kind!r}",
        id="check-kind-unknown",
        next=f"did you mean {close[0]!r}?" if close else f"the kinds are: {', '.join(sorted(known))}",
    )


def bind_check(check: Check, args: Mapping[str, Any] | None = None) -> Callable[[Any], Any]:
    """The function of a check with its arguments validated: it takes the subject only.

    args: in place of the check's own. Raises InvalidError for an unknown kind and for wrong arguments.
    """
    kind = find_kind(check)
    given = check.args if args is None else args
    arguments = valid_arguments(check, given, kind.arguments, kind.required)
    return lambda subject: kind.function(subject, **arguments)


def valid_arguments(
    check: Check, given: Mapping[str, Any], types: Mapping[str, Any], required: Collection[str] = ()
) -> dict[str, Any]:
    """Arguments by parameter name (`at-least` is `at_least`), lists as tuples; nothing else is converted.

    Raises InvalidError for an argument that is unknown, missing, or of another type.
    """
    from pydantic import TypeAdapter, ValidationError

    arguments = {name.replace("-", "_"): _frozen(value) for name, value in given.items()}
    for name in arguments:
        if name not in types:
            raise _wrong_arguments(check, name, f"Unexpected argument; {_listed(types)}")
    for name in required:
        if name not in arguments:
            raise _wrong_arguments(check, name, "Missing argument")
    for name, value in arguments.items():
        try:
            arguments[name] = TypeAdapter(types[name]).validate_python(value, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise _wrong_arguments(check, ".".join(map(str, (name, *first["loc"]))), first["msg"]) from None
    return arguments


def run_check(check: Check, run: Callable[[], str | CheckPassed], seconds: float | None = None) -> Result:
    """Run one check; its outcome as a Result. A ValueError is damaged input, and fails the check.

    seconds: wall time, where the check ran before and `run` only judges its output.
    """
    start = time.monotonic()
    status: Status = "pass"
    details = None
    try:
        found = run()
        message, details = (found.message, found.details) if isinstance(found, CheckPassed) else (found, None)
    except CheckNotRun as reason:
        status, message = "not-run", str(reason)
    except CheckWarned as reason:
        status, message = "warn", str(reason)
    except (CheckFailed, ValueError) as reason:
        status, message = "fail", str(reason)
    return check_result(check, status, message, time.monotonic() - start if seconds is None else seconds, details)


def check_result(check: Check, status: Status, message: str, seconds: float = 0.0, details: Any = None) -> Result:
    """The Result of a check. seconds: wall time."""
    return Result(check.id, check.kind, check.tier, status, message, round(seconds, 3), details)


def _wrong_arguments(check: Check, name: str, problem: str) -> InvalidError:
    return InvalidError(
        f"check {check.id} ({check.kind}): {name}: {problem}",
        id="check-arguments-wrong",
        cause="the args do not fit this kind of check",
    )


def _listed(types: Mapping[str, Any]) -> str:
    return f"the arguments are: {', '.join(sorted(types))}" if types else "there are no arguments"


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
