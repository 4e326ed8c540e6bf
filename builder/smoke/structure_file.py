"""Test files in the format of container-structure-test, schema 2.0.0, turned into checks.

Tests of files, contents and metadata become static checks, commands become cpu checks. What this module does not
support (licence tests, privileged containers, mounts) is an error that names it: no test is silently ignored.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from builder.errors import InvalidError
from builder.model.check import Check
from builder.model.yamlfile import load
from builder.pattern import compiled
from builder.regular import read_regular
from builder.smoke.structure_format import SETUP_FAILED, CommandTest, StructureTest

_LARGEST = 1 << 20
"""Bytes of a file with variables."""
_LONGEST = 1 << 17
"""Characters of a variable: Linux takes no longer ones."""


def structure_checks(path: Path, env: Mapping[str, str]) -> list[Check]:
    """The checks of a test file. env: the image's environment, which replaces `$NAME` in values.

    Raises InvalidError for another format, a wrong pattern, or a feature that is not supported.
    """
    found = load(path, StructureTest)
    where = str(path)
    _refuse(found, where)
    checks: list[Check] = []
    taken: set[str] = set()
    for kind, name, args in [*_files(found), *_metadata(found), *_commands(found, env, path)]:
        _check_patterns(args, where)
        tier: Literal["static", "cpu"] = "cpu" if kind == "structure-command" else "static"
        checks.append(Check(id=_id(name, taken), tier=tier, kind=kind, args=args))
    if not checks:
        raise InvalidError("the file has no test", id="structure-empty", where=where)
    return checks


_CheckParts = tuple[str, str, dict[str, Any]]
"""kind, name, arguments."""


def _files(found: StructureTest) -> Iterator[_CheckParts]:
    for test in found.fileExistenceTests:
        yield "structure-file", test.name, test.model_dump(exclude={"name"}, exclude_none=True)
    for each in found.fileContentTests:
        args = {"path": each.path, "expected": list(each.expectedContents), "excluded": list(each.excludedContents)}
        yield "structure-content", each.name, args


def _metadata(found: StructureTest) -> Iterator[_CheckParts]:
    if found.metadataTest is not None:
        args = found.metadataTest.model_dump(exclude_none=True, mode="json")
        args["envVars"] += args.pop("env")
        for name in ("exposedPorts", "unexposedPorts"):
            args[name] = [str(port) for port in args[name]]
        yield (
            "structure-metadata",
            "metadata",
            {name: value for name, value in args.items() if value != []}
            | {name: [] for name in ("entrypoint", "cmd") if args.get(name) == []},
        )


def _commands(found: StructureTest, env: Mapping[str, str], path: Path) -> Iterator[_CheckParts]:
    options = found.containerRunOptions
    outside = {name: os.environ[name] for name in options.envVars if name in os.environ}
    if options.envFile is not None:
        outside = _read_env(path.parent / options.envFile) | outside
    for test in found.commandTests:
        variables = dict(outside)
        for item in (*found.globalEnvVars, *test.envVars):
            variables[item.key] = _substitute(item.value, {**env, **variables}, str(path))
        yield (
            "structure-command",
            test.name,
            {
                "argv": _argv(test),
                "env": variables,
                "user": options.user,
                "expected_output": list(test.expectedOutput),
                "excluded_output": list(test.excludedOutput),
                "expected_error": list(test.expectedError),
                "excluded_error": list(test.excludedError),
                "status": test.exitCode,
            },
        )


def _argv(test: CommandTest) -> list[str]:
    if not test.setup and not test.teardown:
        return [test.command, *test.args]
    # Setup, command and teardown share a container. The output of setup and teardown is discarded.
    lines = [f"( {shlex.join(words)} ) >/dev/null 2>&1 || exit {SETUP_FAILED}" for words in test.setup]
    lines += ['"$@"', "status=$?", *(f"( {shlex.join(words)} ) >/dev/null 2>&1" for words in test.teardown)]
    return ["sh", "-c", "\n".join([*lines, "exit $status"]), "sh", test.command, *test.args]


def _read_env(path: Path) -> dict[str, str]:
    try:
        lines = read_regular(path, _LARGEST, follow=True).decode().splitlines()
    except OSError as error:
        raise InvalidError(f"envFile: {error.strerror}", id="structure-env-file-missing", where=str(path)) from None
    except UnicodeDecodeError:
        raise InvalidError("envFile: not UTF-8 text", id="structure-env-file-missing", where=str(path)) from None
    words = (line.partition("=") for line in lines if line.strip() and not line.startswith("#"))
    return {name.strip(): value if equals else os.environ.get(name.strip(), "") for name, equals, value in words}


def _substitute(text: str, env: Mapping[str, str], where: str) -> str:
    """The text with the values of variables, which may have such values themselves: each could multiply its length."""
    left = _LONGEST - len(text)

    def value(match: re.Match[str]) -> str:
        nonlocal left
        found = env.get(match[1] or match[2], "")
        left -= len(found)
        if left < 0:
            raise InvalidError(
                f"a variable has more than {_LONGEST} characters", id="structure-variable-too-long", where=where
            )
        return found

    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", value, text)


def _refuse(found: StructureTest, where: str) -> None:
    options = found.containerRunOptions
    for name, given in (
        ("licenseTests", found.licenseTests),
        ("containerRunOptions.privileged", options.privileged),
        ("containerRunOptions.allocateTty", options.allocateTty),
        ("containerRunOptions.capabilities", options.capabilities),
        ("containerRunOptions.bindMounts", options.bindMounts),
    ):
        if given:
            raise InvalidError(
                f"builder does not support {name}",
                id="structure-unsupported",
                where=where,
                next="run this file with container-structure-test itself",
            )


def _check_patterns(args: Mapping[str, Any], where: str) -> None:
    names = ("expected", "excluded", "expected_output", "excluded_output", "expected_error", "excluded_error")
    texts = [text for name in names for text in args.get(name, ())]
    variables: Sequence[dict[str, Any]] = [*args.get("envVars", ()), *args.get("labels", ())]
    texts += [item["value"] for item in variables if item["isRegex"]]
    for text in texts:
        try:
            compiled(text)
        except ValueError as error:
            raise InvalidError(str(error), id="structure-pattern-wrong", where=where) from None


def _id(name: str, taken: set[str]) -> str:
    words = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "test"
    stem = f"structure-{words}"[:60].rstrip("-.")
    number, made = 1, stem
    while made in taken:
        number += 1
        made = f"{stem}-{number}"
    taken.add(made)
    return made
