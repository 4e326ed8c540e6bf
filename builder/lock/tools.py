"""Locks what the programs themselves run with: scripts/*requirements.txt of a checkout, from its pyproject.toml."""

from __future__ import annotations

import re
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.atomic import staged
from builder.errors import InvalidError
from builder.lock.findings import Change, Problem
from builder.model.canonical import fingerprint


@dataclass(frozen=True)
class Tools:
    """One file of pins. title: its first line; groups: of pyproject.toml; within: the file whose versions bind it."""

    file: str
    title: str
    groups: tuple[str, ...]
    project: bool = True
    within: str | None = None


RUN = "scripts/requirements.txt"
FILES = (
    Tools(
        RUN,
        "# What `builder` is built and runs with, resolved from pyproject.toml by `builder lock tools`.",
        ("build",),
    ),
    Tools(
        "scripts/dev-requirements.txt",
        "# What the tests run with: the versions of requirements.txt, and the group dev of pyproject.toml.",
        ("build", "dev"),
        within=RUN,
    ),
    Tools(
        "scripts/ci/requirements.txt",
        "# What checks workflows besides zizmor: the group actionlint of pyproject.toml. Its package downloads the "
        "program from GitHub.",
        ("actionlint",),
        project=False,
    ),
)
_OPTIONS = ("--universal", "--python-version", "3.11", "--generate-hashes", "--no-emit-index-url")


def has_tools(root: Path) -> bool:
    """Whether a project is a checkout of this program: neither an installed package nor a project of others."""
    if not ((root / RUN).is_file() and (root / "pyproject.toml").is_file()):
        return False
    named = _project(root).get("project")
    return isinstance(named, dict) and named.get("name") == "builder"


def check_tools(root: Path) -> list[Problem]:
    """Which files were not made from pyproject.toml as it is, or were changed since. Raises InvalidError."""
    project = _project(root)
    found = {tools.file: _parts(root / tools.file) for tools in FILES}
    bodies = {file: body for file, (_, body) in found.items()}
    problems = []
    for tools in FILES:
        if not (root / tools.file).is_file():
            problems.append(Problem("tools", "tools", f"{tools.file} is not there", "builder lock tools"))
        elif found[tools.file][0] != _seal(project, tools, bodies):
            what = f"{tools.file} was resolved from another pyproject.toml, or changed since"
            problems.append(Problem("tools", "tools", what, "builder lock tools"))
    return problems


def update_tools(root: Path, *, upgrade: bool) -> list[Change]:
    """Resolve all files and write those that changed, all or none; returns the changes.

    upgrade: take the newest; else pins that still fit stay. Raises UsageError without uv, PinError when they cannot be
    resolved.
    """
    from builder.inputs.hosts import wheel_indexes
    from builder.lock.wheels import uv_compile

    project = _project(root)
    index = wheel_indexes()[0]
    old = {tools.file: _parts(root / tools.file)[1] for tools in FILES}
    new: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="builder-tools-") as name:
        folder = Path(name)
        for tools in FILES:
            # uv keeps the pins that it finds in the file that it is to write.
            output = folder / tools.file.replace("/", "-")
            output.write_text(old[tools.file])
            words = [*_OPTIONS, *(["--upgrade"] if upgrade else [])]
            words += [str(root / "pyproject.toml")] if tools.project else []
            words += [word for group in tools.groups for word in ("--group", group)]
            words += ["--constraints", str(folder / tools.within.replace("/", "-"))] if tools.within else []
            words += ["--output-file", str(output)]
            uv_compile(words, root, index, what=tools.file, mend="correct pyproject.toml")
            new[tools.file] = output.read_text()
    made = {
        root / tools.file: f"{tools.title}\n# seal: {_seal(project, tools, new)}\n{new[tools.file]}".encode()
        for tools in FILES
    }
    changed = {path: data for path, data in made.items() if not path.is_file() or path.read_bytes() != data}
    with staged(changed) as put:
        for path in changed:
            put(path)
    return [change for tools in FILES for change in _changes(tools.file, old[tools.file], new[tools.file])]


def _project(root: Path) -> dict[str, Any]:
    path = root / "pyproject.toml"
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidError(f"cannot be read: {error}", where=str(path)) from None


def _seal(project: dict[str, Any], tools: Tools, bodies: Mapping[str, str]) -> str:
    groups = project.get("dependency-groups", {})
    asked = [groups.get(group) for group in tools.groups]
    asked += [project.get("project", {}).get("dependencies")] if tools.project else []
    within = bodies[tools.within] if tools.within else None
    return fingerprint([asked, within, bodies[tools.file]])


def _parts(path: Path) -> tuple[str | None, str]:
    """The seal in a file's second line, and what is below it. Raises InvalidError."""
    try:
        text = path.read_text("utf-8") if path.is_file() else ""
    except (OSError, ValueError) as error:
        raise InvalidError(f"cannot be read: {error}", where=str(path)) from None
    match = re.match(r"(?:#(?! seal:).*\n)?(?:# seal: (.*)\n)?", text)
    assert match is not None
    return match[1], text[match.end() :]


def _changes(file: str, old: str, new: str) -> list[Change]:
    before, after = _pins(old), _pins(new)
    return [
        Change("tools", file, name, _versions(before.get(name)), _versions(after.get(name)))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def _pins(body: str) -> dict[str, list[str]]:
    """The entries by name: markers can give a package several."""
    found: dict[str, list[str]] = {}
    for entry in re.split(r"\n(?=[a-z0-9])", body.strip()):
        found.setdefault(entry.partition("==")[0], []).append(entry)
    return found


def _versions(entries: list[str] | None) -> str | None:
    return ", ".join(re.findall(r"(?m)^[a-z0-9._-]+==([^\s;\\]+)", "\n".join(entries))) if entries else None
